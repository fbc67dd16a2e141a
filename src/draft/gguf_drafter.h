// A drafter in one GGUF file, as llama.cpp's architecture `dflash` reads and its converter writes
// it (MODELS.md 6), in and out. Its conventions end here:
//   dflash.target_layers      one more than our taps ("input of layer id")
//   windows                   counted from the query, one rule inside the block for all layers
//   d2t                       target ids themselves; a reduced vocabulary brings its own output
// Keys "dflash_cpp.*" are ours: the target's depth and who it was trained for.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "io/gguf_write.h"

namespace dflash::draft {

DraftSpec read_gguf_drafter(const std::filesystem::path& path);
/// Ready to decode (packed); quantised weights are widened.
std::shared_ptr<Drafter> load_gguf_drafter(const std::filesystem::path& path, nn::Compute compute);

/// Why llama.cpp could not run a drafter; empty: it can.
std::vector<std::string> gguf_limits(const Drafter& drafter);

struct GgufDrafterParts {
  /// The target's tokenizer.* keys: llama.cpp wants a vocabulary in every file.
  std::vector<io::GgufEntry> tokenizer;
  /// Rows of the drafter's vocabulary; needed with a reduced one, or with an own embedding table,
  /// which llama.cpp would tie to the output.
  at::Tensor head_VD;
  int64_t max_positions = 0;  // when the drafter's own are unsaid
};
void save_gguf_drafter(const Drafter& drafter, const std::filesystem::path& path,
                       nn::Compute storage, const GgufDrafterParts& parts);

/// llama.cpp's name of a parameter ("blk.0.attn_q.weight"), and back; an unknown name stays as it
/// is.
std::string gguf_name(const std::string& name);
std::string name_from_gguf(const std::string& name);

}  // namespace dflash::draft
