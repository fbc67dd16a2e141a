#include "train/checkpoint.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "nn/tensor_io.h"

namespace dflash::train {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFormat = "dflash-checkpoint";
constexpr int64_t kVersion = 1;
constexpr std::string_view kMarker = "COMPLETE";
constexpr std::string_view kOptimizer = "optimizer-00000-of-00001.safetensors";
constexpr std::string_view kPrefix = "step-";

/// Step of a folder name, -1 for others.
int64_t step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || name.size() <= kPrefix.size()) return -1;
  const std::string digits = name.substr(kPrefix.size());
  const bool numeric = digits.size() < 18 && std::all_of(digits.begin(), digits.end(), [](char c) {
                         return c >= '0' && c <= '9';
                       });
  return numeric ? std::stoll(digits) : -1;
}

void remove_folder(const fs::path& path) {
  std::error_code code;
  fs::remove(path / kMarker, code);  // first, so that a crash leaves no complete-looking rest
  sync_folder(path);
  fs::remove_all(path, code);
}

struct Found {
  std::vector<CheckpointEntry> complete;
  std::vector<fs::path> incomplete;
};

Found scan(const fs::path& checkpoints) {
  Found found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(checkpoints, code)) {
    const int64_t step = step_of(entry.path());
    if (step < 0 || !entry.is_directory()) continue;
    if (!fs::exists(entry.path() / kMarker)) {
      found.incomplete.push_back(entry.path());
      continue;
    }
    CheckpointEntry item{step, entry.path(), -1.0};
    try {
      item.tau = read_json(entry.path() / "state.json").value("tau", -1.0);
    } catch (const std::exception& e) {
      log_warning("checkpoint {} is marked complete but damaged: {}", entry.path().string(),
                  e.what());
      continue;
    }
    found.complete.push_back(item);
  }
  std::sort(found.complete.begin(), found.complete.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

}  // namespace

fs::path save_checkpoint(const fs::path& checkpoints, const CheckpointContent& content,
                         const SaveHooks& hooks) {
  const auto done = [&](std::string_view stage) {
    if (hooks.after_stage) hooks.after_stage(stage);
  };
  const fs::path folder = checkpoints / fmt::format("{}{:06}", kPrefix, content.step);
  make_folder(folder);
  require_free_space(folder, content.bytes + (content.bytes >> 4));
  std::error_code code;
  fs::remove(folder / kMarker, code);
  sync_folder(folder);
  done("cleared");
  content.save_model(folder / "model");
  done("model");
  nn::save_tensors(folder / kOptimizer, content.optimizer);
  done("optimizer");
  Json state = content.state;
  state["format"] = kFormat;
  state["version"] = kVersion;
  state["step"] = content.step;
  write_json(folder / "state.json", state);
  done("state");
  write_text(folder / kMarker, "");
  sync_folder(checkpoints);
  done("complete");
  return folder;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& checkpoints) {
  return scan(checkpoints).complete;
}

std::optional<CheckpointEntry> latest_checkpoint(const fs::path& checkpoints) {
  const Found found = scan(checkpoints);
  for (const fs::path& path : found.incomplete) {
    log_warning("checkpoint {} is incomplete and ignored", path.string());
  }
  if (found.complete.empty()) return std::nullopt;
  return found.complete.back();
}

std::optional<CheckpointEntry> best_checkpoint(const fs::path& checkpoints) {
  std::optional<CheckpointEntry> best;
  for (const CheckpointEntry& entry : list_checkpoints(checkpoints)) {
    if (entry.tau >= 0 && (!best || entry.tau >= best->tau)) best = entry;
  }
  return best;
}

void prune_checkpoints(const fs::path& checkpoints, int64_t keep_last) {
  const Found found = scan(checkpoints);
  const auto best = best_checkpoint(checkpoints);
  const auto count = static_cast<int64_t>(found.complete.size());
  for (int64_t i = 0; i + std::max<int64_t>(keep_last, 1) < count; ++i) {
    if (!best || found.complete[i].step != best->step) remove_folder(found.complete[i].path);
  }
  for (const fs::path& path : found.incomplete) {
    if (count > 0 && step_of(path) < found.complete.back().step) remove_folder(path);
  }
}

LoadedCheckpoint load_checkpoint(const fs::path& folder) {
  if (!fs::exists(folder / kMarker)) {
    fail(
        "checkpoint {}: expected a complete one (file {}), got none\n  hint: name a folder "
        "step-NNNNNN that has it, or resume from the run's folder",
        folder.string(), kMarker);
  }
  LoadedCheckpoint out;
  out.state = read_json(folder / "state.json");
  if (out.state.value("format", "") != kFormat || out.state.value("version", 0) != kVersion) {
    fail("checkpoint {}: expected format {} version {}, got {} version {}", folder.string(),
         kFormat, kVersion, out.state.value("format", "?"), out.state.value("version", 0));
  }
  out.optimizer = nn::load_tensors(folder / kOptimizer);
  out.model = folder / "model";
  return out;
}

}  // namespace dflash::train
