// A run by several ranks: one writes, all stop, resume and fail together.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "base/timer.h"
#include "support/ranks.h"
#include "support/temp_folder.h"
#include "train/run.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using testing::TempFolder;
using toy::World;

/// One rank's part in a run: its world, what it is called with, what came out.
struct Part {
  World world;
  RunOptions run;
  TrainCallbacks callbacks;
  RunResult result;
  CheckpointContent end;
};

/// `prepare` is given each rank's part before it runs; parts live until the end.
std::vector<std::string> train_ranks(int ranks, std::vector<std::unique_ptr<Part>>& parts,
                                     const std::function<void(Part&, Comm&)>& prepare) {
  parts.resize(static_cast<size_t>(ranks));
  return run_ranks(ranks, [&](Comm& comm) {
    auto part = std::make_unique<Part>();
    part->world.options.total_steps = 8;
    part->world.options.save_every = 4;
    prepare(*part, comm);
    TrainParts own = part->world.parts();
    own.comm = &comm;
    Trainer trainer(own, part->world.options);
    part->result = run_training(trainer, part->run, part->callbacks);
    part->end = trainer.checkpoint(-1);
    parts[static_cast<size_t>(comm.rank())] = std::move(part);
  });
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(errors[r], "") << "rank " << r;
}

std::vector<Json> lines_of(const std::filesystem::path& file) {
  std::vector<Json> out;
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

// R-CK-1 over ranks: a signal to rank 1 stops both after the same step; what goes on from there
// equals the unbroken run bit for bit, in weights, moments and state, and so do the metrics.
TEST(RankedRun, StoppedAndResumedEqualsUnbroken) {
  const TempFolder folder;
  std::vector<std::unique_ptr<Part>> unbroken, broken, resumed;
  expect_no_errors(
      train_ranks(2, unbroken, [&](Part& part, Comm&) { part.run.folder = folder / "unbroken"; }));
  std::array<int, 2> asked = {};
  expect_no_errors(train_ranks(2, broken, [&](Part& part, Comm& comm) {
    part.run.folder = folder / "broken";
    const int rank = comm.rank();
    part.callbacks.should_stop = [&asked, rank] { return ++asked[rank] == 6 && rank == 1; };
  }));
  for (const auto& part : broken) {
    EXPECT_FALSE(part->result.finished);
    EXPECT_EQ(part->result.steps, 6);
  }
  expect_no_errors(train_ranks(2, resumed, [&](Part& part, Comm&) {
    part.run.folder = folder / "broken";
    part.run.resume = true;
  }));
  for (const auto& part : resumed) {
    EXPECT_TRUE(part->result.finished);
    toy::expect_equal(toy::copy_weights(*part->world.model),
                      toy::copy_weights(*unbroken[0]->world.model));
    toy::expect_equal(part->end.optimizer, unbroken[0]->end.optimizer);
    EXPECT_EQ(part->end.state, unbroken[0]->end.state);
  }
  const auto want = lines_of(folder / "unbroken" / "metrics.jsonl");
  const auto got = lines_of(folder / "broken" / "metrics.jsonl");
  ASSERT_EQ(got.size(), 8U) << "rank 0 alone writes";
  for (size_t i = 0; i < got.size(); ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "anchors", "tokens", "slot_accuracy"}) {
      EXPECT_EQ(got[i][key], want[i][key]) << key << " of line " << i;
    }
  }
  const Json header = read_json(folder / "broken" / "run.json")["header"];
  EXPECT_EQ(header["machine"]["ranks"], 2);
  EXPECT_THAT(header["loss_rule"].get<std::string>(), HasSubstr("over all 2 ranks"));
}

TEST(RankedRun, AnotherNumberOfRanksIsAnnounced) {
  const TempFolder folder;
  std::vector<std::unique_ptr<Part>> first;
  expect_no_errors(train_ranks(2, first, [&](Part& part, Comm&) {
    part.world.options.total_steps = 4;
    part.run.folder = folder.path();
  }));
  World alone;
  alone.options.total_steps = 8;
  ::testing::internal::CaptureStderr();
  const auto result = run_training(*alone.trainer(), {.folder = folder.path(), .resume = true}, {});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("ranks was 2, is 1"));
  EXPECT_EQ(result.steps, 8);
}

// TR-03: validation is rank 0's, without collectives; the others get its tau, and wait.
TEST(RankedRun, Rank0ValidatesForAll) {
  const TempFolder folder;
  std::array<int, 3> calls = {};
  std::vector<std::unique_ptr<Part>> parts;
  expect_no_errors(train_ranks(3, parts, [&](Part& part, Comm& comm) {
    part.run.folder = folder.path();
    part.world.options.validate_every = 3;
    const int rank = comm.rank();
    part.callbacks.validate = [&calls, rank](const draft::Drafter&) {
      ::usleep(50'000);
      return Json{{"tau", 1.0 + ++calls[rank]}};
    };
  }));
  EXPECT_EQ(calls, (std::array<int, 3>{3, 0, 0}));  // after steps 3, 6 and 8
  for (const auto& part : parts) EXPECT_EQ(part->result.last_tau, 4.0);
  EXPECT_EQ(parts[0]->result.best_checkpoint.filename(), "step-000008");
  EXPECT_TRUE(parts[1]->result.last_checkpoint.empty());
}

// What fails on one rank ends all in bounded time, and is named on all.
TEST(RankedRun, TheFailureOfOneEndsAll) {
  const TempFolder folder;
  const Timer timer;
  std::vector<std::unique_ptr<Part>> parts;
  auto errors = train_ranks(3, parts, [&](Part& part, Comm& comm) {
    part.run.folder = folder / "a";
    if (comm.rank() != 1) return;
    part.callbacks.on_step = [](const StepMetrics& metrics) {
      if (metrics.step == 3) fail("its disk is gone");
    };
  });
  EXPECT_EQ(errors[1], "its disk is gone");
  for (int r : {0, 2}) EXPECT_EQ(errors[r], "ranks: rank 1 failed: its disk is gone");
  // In a validation: the steps before it are kept.
  errors = train_ranks(2, parts, [&](Part& part, Comm&) {
    part.run.folder = folder / "b";
    part.world.options.validate_every = 3;
    part.callbacks.validate = [](const draft::Drafter&) -> Json { fail("no prompts"); };
  });
  EXPECT_EQ(errors[0], "no prompts");
  EXPECT_EQ(errors[1], "ranks: rank 0 failed: no prompts");
  EXPECT_EQ(latest_checkpoint(folder / "b" / "checkpoints")->step, 3);
  EXPECT_LT(timer.seconds(), 60);
}

// Rank 0's clock and plan count; another rank's may say anything.
TEST(RankedRun, TimeIsRank0s) {
  const TempFolder folder;
  double time = 0;
  std::vector<std::unique_ptr<Part>> parts;
  expect_no_errors(train_ranks(2, parts, [&](Part& part, Comm& comm) {
    part.run.folder = folder.path();
    part.run.max_seconds = 40;
    part.run.probe_seconds = 0.05;
    if (comm.leads()) {
      part.run.clock = [&time] { return time; };
      part.callbacks.on_step = [&time](const StepMetrics&) { time += 2; };
    } else {
      part.run.clock = [] { return 1e9; };
    }
  }));
  EXPECT_NEAR(parts[0]->result.seconds, 40, 5);
  EXPECT_EQ(parts[0]->result.steps, parts[1]->result.steps);
  EXPECT_EQ(parts[0]->end.state, parts[1]->end.state);
}

TEST(RankedRun, RanksOfOtherOptionsDoNotBegin) {
  const TempFolder folder;
  std::vector<std::unique_ptr<Part>> parts;
  const auto errors = train_ranks(2, parts, [&](Part& part, Comm& comm) {
    part.run.folder = folder.path();
    if (comm.rank() == 1) part.world.options.anchors_per_step = 13;
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("options/anchors_per_step: rank 0 has 12, rank 1 has 13"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run.json"));
}

}  // namespace
}  // namespace dflash::train
