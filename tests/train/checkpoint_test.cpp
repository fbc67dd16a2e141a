#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"
#include "train/metrics_file.h"

namespace dflash::train {
namespace {
namespace fs = std::filesystem;

CheckpointContent content(int64_t step, double tau = -1) {
  CheckpointContent c;
  c.step = step;
  c.state = {{"tau", tau}, {"value", step}};
  c.optimizer = {{"m", at::full({3}, static_cast<double>(step), at::kFloat)}};
  c.save_model = [step](const fs::path& folder) {
    make_folder(folder);
    write_text(folder / "weights", std::to_string(step));
  };
  return c;
}

struct Killed {};

// R-CK-3
TEST(Checkpoint, KillPointsLeaveTheLastCompleteOne) {
  for (const std::string stage : {"cleared", "model", "optimizer", "state"}) {
    const testing::TempFolder folder;
    save_checkpoint(folder.path(), content(1));
    SaveHooks hooks;
    hooks.after_stage = [&](std::string_view now) {
      if (now == stage) throw Killed{};
    };
    EXPECT_THROW(save_checkpoint(folder.path(), content(2), hooks), Killed);
    ASSERT_TRUE(latest_checkpoint(folder.path()).has_value()) << stage;
    EXPECT_EQ(latest_checkpoint(folder.path())->step, 1) << stage;
    // A step that was complete is not while it is written again.
    save_checkpoint(folder.path(), content(2));
    EXPECT_EQ(latest_checkpoint(folder.path())->step, 2);
    EXPECT_THROW(save_checkpoint(folder.path(), content(2), hooks), Killed);
    EXPECT_EQ(latest_checkpoint(folder.path())->step, 1) << stage;
    save_checkpoint(folder.path(), content(2));
    EXPECT_EQ(load_checkpoint(latest_checkpoint(folder.path())->path).state["value"], 2);
  }
  // After the marker nothing can be lost.
  const testing::TempFolder folder;
  SaveHooks hooks;
  hooks.after_stage = [](std::string_view now) {
    if (now == "complete") throw Killed{};
  };
  EXPECT_THROW(save_checkpoint(folder.path(), content(5), hooks), Killed);
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 5);
}

// R-CK-5
TEST(Checkpoint, BestSurvivesMovingAndIsMissedWhenDeleted) {
  const testing::TempFolder folder;
  const fs::path before = folder.path() / "a", after = folder.path() / "b";
  save_checkpoint(before, content(1, 2.0));
  save_checkpoint(before, content(2, 3.0));
  save_checkpoint(before, content(3, 2.5));
  fs::rename(before, after);
  EXPECT_EQ(best_checkpoint(after)->step, 2);
  EXPECT_EQ(best_checkpoint(after)->path, after / "step-000002");
  fs::remove_all(after / "step-000002");
  EXPECT_EQ(latest_checkpoint(after)->step, 3);
  EXPECT_EQ(best_checkpoint(after)->step, 3);
}

TEST(Checkpoint, PruneKeepsLastAndBest) {
  const testing::TempFolder folder;
  for (int64_t step = 1; step <= 5; ++step) {
    save_checkpoint(folder.path(), content(step, step == 2 ? 4.0 : 1.0));
  }
  make_folder(folder.path() / "step-000003-not-ours");
  fs::remove(folder.path() / "step-000001" / "COMPLETE");
  prune_checkpoints(folder.path(), 2);
  std::vector<int64_t> steps;
  for (const auto& entry : list_checkpoints(folder.path())) steps.push_back(entry.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4, 5}));
  EXPECT_FALSE(fs::exists(folder.path() / "step-000001"));
  EXPECT_TRUE(fs::exists(folder.path() / "step-000003-not-ours"));
}

TEST(Checkpoint, IncompleteOrForeignIsAnError) {
  const testing::TempFolder folder;
  EXPECT_THROW(load_checkpoint(folder.path()), Error);
  const fs::path path = save_checkpoint(folder.path(), content(1));
  write_json(path / "state.json", {{"format", "other"}, {"version", 1}});
  EXPECT_THROW(load_checkpoint(path), Error);
  EXPECT_FALSE(latest_checkpoint(folder.path() / "absent").has_value());
}

TEST(Checkpoint, TruncatedOptimizerIsAnError) {
  const testing::TempFolder folder;
  const fs::path path = save_checkpoint(folder.path(), content(1));
  const fs::path file = path / "optimizer-00000-of-00001.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_THROW(load_checkpoint(path), Error);
}

TEST(MetricsFile, IsCutToTheResumedStep) {
  const testing::TempFolder folder;
  const fs::path path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int step = 1; step <= 4; ++step) file.write({{"step", step}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 5, \"torn";
  {
    MetricsFile file(path, 2);
    file.write({{"step", 3}, {"again", true}});
  }
  EXPECT_EQ(read_text(path), "{\"step\":1}\n{\"step\":2}\n{\"again\":true,\"step\":3}\n");
}

}  // namespace
}  // namespace dflash::train
