// Drafters of any form as proposers, with the checks that catch a drafter beside the wrong target.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "decode/proposers.h"
#include "draft/formats.h"

namespace dflash::cli {

/// What may propose, with a sentence each for --help; the first is the default.
const std::vector<std::pair<std::string, std::string>>& proposer_kinds();
/// Of a kind that needs a drafter, from `drafter` in any form. Warns when fingerprints differ.
std::unique_ptr<decode::Proposer> make_proposer(const std::string& kind,
                                                const std::filesystem::path& drafter,
                                                const jobs::Model& model, int64_t max_proposals);
/// Of a kind that needs none.
std::unique_ptr<decode::Proposer> make_lookup(const std::string& kind, const jobs::Model& model,
                                              int64_t max_proposals);

/// --proposer KIND, --drafter PATH, --draft-tokens N.
struct ProposerOptions {
  std::string kind = "auto";  // auto without a drafter: none
  std::string drafter;        // any form, or a run folder (its best checkpoint)
  int64_t max_proposals = 0;  // 0: what the kind takes

  void add(CLI::App& app);
  /// Without --drafter takes the bundled one where it fits `target` and the kind can use it. Error:
  /// options that exclude each other. Before anything is loaded.
  void resolve(const TargetOptions& target);
  /// nullptr for plain decoding. Warns when fingerprints differ. Errors: files, shapes, taps.
  std::unique_ptr<decode::Proposer> make(const jobs::Model& model) const;
};

/// The bundled drafter's folder when it belongs to `target`, with a line that says so; else empty.
std::string take_bundled_drafter(const TargetOptions& target);

/// A warning when more proposals a pass are asked for than there can be.
void warn_of_more(const decode::Proposer& proposer, int64_t max_proposals);

/// A drafter's folder or file, or the best (else the last) checkpoint of a run folder.
std::filesystem::path resolve_drafter(const std::filesystem::path& path);
/// When fingerprints differ; `folder` is where the drafter came from.
void warn_of_another_target(const draft::Drafter& drafter, const std::filesystem::path& folder,
                            const jobs::Model& model);
/// Packed. Warns when fingerprints differ.
std::shared_ptr<draft::Drafter> load_drafter(const std::filesystem::path& path,
                                             const jobs::Model& model);

/// What an exported drafter takes from the target at `path`.
draft::TargetParts target_parts(const std::filesystem::path& path, const jobs::Model& model);
/// The target as speculators names it; its architecture where that is a folder here.
draft::Verifier verifier_of(const std::string& name_or_path);

}  // namespace dflash::cli
