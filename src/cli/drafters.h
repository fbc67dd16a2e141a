// Drafter folders as proposers, with the checks that catch a drafter beside the wrong target.
#pragma once

#include <memory>
#include <string>

#include "cli/options.h"
#include "decode/proposers.h"
#include "draft/drafter.h"

namespace dflash::cli {

/// --proposer drafter|lookup|none, --drafter FOLDER, --draft-tokens N.
struct ProposerOptions {
  std::string kind = "auto";  // auto: drafter when one is given, else none
  std::string drafter;        // z-lab folder, or a run folder (its best checkpoint)
  int64_t max_proposals = 0;  // 0: block size - 1

  void add(CLI::App& app);
  /// Error: options that exclude each other. Before anything is loaded.
  void check() const;
  /// nullptr for plain decoding. Warns when fingerprints differ. Errors: files, shapes, taps.
  std::unique_ptr<decode::Proposer> make(const jobs::Model& model) const;
};

/// A warning when more proposals a pass are asked for than there can be.
void warn_of_more(const decode::Proposer& proposer, int64_t max_proposals);

/// A drafter folder, or the best (else the last) checkpoint of a run folder.
std::filesystem::path resolve_drafter(const std::filesystem::path& path);
std::shared_ptr<const draft::Drafter> load_drafter(const std::filesystem::path& path,
                                                   const jobs::Model& model);

}  // namespace dflash::cli
