// One checkpoint folder of a run (DESIGN.md 5):
//   step-000500/  model/ (z-lab form)  optimizer-00000-of-00001.safetensors  state.json  COMPLETE
// Payload first, synced, marker last; the marker is removed first when a folder is written again.
// A folder without COMPLETE does not exist for a reader.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace dflash::train {

struct CheckpointContent {
  int64_t step = 0;
  Json state;                                                    // state.json
  std::map<std::string, at::Tensor> optimizer;                   // moments by name
  std::function<void(const std::filesystem::path&)> save_model;  // writes the folder model/
  uint64_t bytes = 0;                                            // about, for the free-space check
};

/// `after_stage` is told each finished stage ("cleared", "model", "optimizer", "state",
/// "complete"); tests throw from it.
struct SaveHooks {
  std::function<void(std::string_view)> after_stage;
};

/// Writes checkpoints/step-<step>. Error: disk full (what was complete stays complete).
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints,
                                      const CheckpointContent& content,
                                      const SaveHooks& hooks = {});

struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path path;
  double tau = -1.0;  // validation tau at that step, -1: not measured
};

/// Complete checkpoints, oldest first. Missing folder: none.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& checkpoints);
/// Newest complete one; folders skipped because they are incomplete are logged.
std::optional<CheckpointEntry> latest_checkpoint(const std::filesystem::path& checkpoints);
/// Complete one with the highest tau (later wins ties). When none was measured: nothing.
std::optional<CheckpointEntry> best_checkpoint(const std::filesystem::path& checkpoints);

/// Removes all but the last `keep_last` and the best. Incomplete folders older than the newest
/// complete one go too.
void prune_checkpoints(const std::filesystem::path& checkpoints, int64_t keep_last);

struct LoadedCheckpoint {
  Json state;
  std::map<std::string, at::Tensor> optimizer;
  std::filesystem::path model;
};
/// Error: not complete, damaged, wrong format or version.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& folder);

}  // namespace dflash::train
