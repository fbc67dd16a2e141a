// A run's folder as it is, as a crash left it, and as strangers made it.
#include "runs/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/output.h"
#include "made_run.h"
#include "runs/report.h"

namespace dflash::runs {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::MadeRun;
using testing::TempFolder;
using testing::write_file;

TEST(ReadRun, StepsValidationsAndTheFittedLength) {
  TempFolder folder;
  MadeRun made;
  made.steps = 3;
  made.total_steps = 2;
  made.more_lines =
      "{\"step\": 3, \"validation\": {\"tau\": 1.5, \"slot_acceptance\": [0.4, 0.1]}}\n"
      "{\"step\": 3, \"schedule\": {\"total_steps\": 7}}\n";
  const TrainingRun run = read_run(made.write(folder / "a"));
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[1].anchors_seen, 512);
  EXPECT_EQ(run.anchors_per_second(), 512.0);
  EXPECT_EQ(run.total_steps, 7);
  EXPECT_EQ(run.state, State::kStopped);
  ASSERT_EQ(run.validations.size(), 1u);
  EXPECT_EQ(run.validations[0].tau, 1.5);
  EXPECT_THAT(run.validations[0].slot_acceptance, ElementsAre(0.4, 0.1));
  EXPECT_EQ(run.target(), "llama, 2 blocks");
  EXPECT_TRUE(run.problems.empty());
}

TEST(ReadRun, States) {
  TempFolder folder;
  MadeRun made;
  EXPECT_EQ(read_run(made.write(folder / "a")).state, State::kFinished);
  made.total_steps = 200;
  EXPECT_EQ(read_run(made.write(folder / "a")).state, State::kStopped);
  const auto lock = lock_folder(folder / "a");
  EXPECT_EQ(read_run(folder / "a").state, State::kRunning);
  made.steps = 0;
  EXPECT_EQ(read_run(made.write(folder / "b")).state, State::kBegun);
}

// A fitted length that the run went beyond was another call's.
TEST(ReadRun, AResumedRunHasItsNewLength) {
  TempFolder folder;
  MadeRun made;
  made.steps = 1;
  made.total_steps = 5;
  made.more_lines =
      "{\"step\": 1, \"schedule\": {\"total_steps\": 1}}\n"
      "{\"step\": 2, \"anchors\": 8, \"loss\": 1}\n";
  const TrainingRun run = read_run(made.write(folder / "a"));
  EXPECT_EQ(run.total_steps, 5);
  EXPECT_EQ(run.state, State::kStopped);
}

TEST(ReadRun, ACrashIsToleratedAndSaid) {
  TempFolder folder;
  MadeRun made;
  made.more_lines = "{\"step\": 101, \"anch";
  const TrainingRun run = read_run(made.write(folder / "a"));
  EXPECT_EQ(run.last_step(), 100);
  EXPECT_THAT(run.problems, ElementsAre("metrics.jsonl: the last line is cut off"));
  std::filesystem::remove(folder / "a" / "metrics.jsonl");
  EXPECT_THAT(read_run(folder / "a").problems, ElementsAre("metrics.jsonl is missing"));
}

TEST(ReadRun, BrokenLinesAreLeftOutAndSaid) {
  for (const char* line :
       {"{\"step\": 101, \"anchors\"", "[1]", "{}", "{\"step\": -1, \"loss\": 1}",
        "{\"step\": 1e300, \"anchors\": 1, \"loss\": 1}", "{\"step\": 101}",
        "{\"step\": \"x\", \"anchors\": 1, \"loss\": 1}",
        "{\"step\": 5, \"anchors\": 1, \"loss\": 1}",
        "{\"step\": 101, \"anchors\": 18446744073709551615, \"loss\": 1}",
        "{\"step\": 101, \"anchors\": 1, \"loss\": \"low\"}",
        "{\"step\": 101, \"anchors\": 1, \"loss\": 1, \"slot_accuracy\": 3}",
        "{\"step\": 101, \"anchors\": 1, \"loss\": 1, \"slot_accuracy\": [\"a\"]}",
        "{\"step\": 101, \"schedule\": {\"total_steps\": -1}}",
        "{\"step\": 101, \"validation\": {\"tau\": []}}", "\xff\xfe"}) {
    TempFolder folder;
    MadeRun made;
    made.more_lines = std::string(line) + "\n{\"step\": 102, \"anchors\": 1, \"loss\": null}\n";
    const TrainingRun run = read_run(made.write(folder / "a"));
    ASSERT_EQ(run.problems.size(), 2u) << line;
    EXPECT_THAT(run.problems[1], HasSubstr("1 step missing (the first: 101)")) << line;
    EXPECT_THAT(run.problems[0], HasSubstr("1 broken line left out, line 101: ")) << line;
    EXPECT_EQ(run.last_step(), 102) << "the rest is read: " << line;
    EXPECT_TRUE(std::isnan(run.steps.back().loss));
    EXPECT_EQ(run.total_steps, 102) << line;
  }
}

TEST(ReadRun, OtherFormatsAreErrorsThatNameTheFile) {
  TempFolder folder;
  std::filesystem::create_directories(folder / "a");
  EXPECT_THAT(error_of<Error>([&] { read_run(folder / "a"); }), HasSubstr("got no run.json"));
  const std::string nested = std::string(1000, '[') + std::string(1000, ']');
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "run.json: "},
           {"{\"format\": \"dflash-run\"", "run.json: "},
           {"[]", "expected format \"dflash-run\", got null"},
           {"{\"format\": 3}", "expected format \"dflash-run\", got 3"},
           {"{\"format\": \"dflash-run\", \"version\": 2}", "expected version 1, got 2"},
           {"{\"format\": \"dflash-run\"}", "expected version 1, got null"},
           {nested, "run.json: "}}) {
    write_file(folder / "a" / "run.json", text);
    const std::string message = error_of<Error>([&] { read_run(folder / "a"); });
    EXPECT_THAT(message, HasSubstr(part)) << text;
    EXPECT_THAT(message, HasSubstr(folder.path().string())) << text;
    EXPECT_THAT(message, HasSubstr("\n  hint: ")) << text;
  }
  for (const char* odd : {"[]", "3", "null", "{\"options\": 1, \"total_steps\": \"all\"}"}) {
    write_file(folder / "a" / "run.json",
               std::string("{\"format\": \"dflash-run\", \"version\": 1, \"config\": ") + odd +
                   ", \"header\": " + odd + "}");
    EXPECT_EQ(read_run(folder / "a").target(), "unknown") << odd;
  }
}

TEST(FindRuns, ItselfOrThoseUnderIt) {
  TempFolder folder;
  const MadeRun made;
  const auto v3 = made.write(folder / "v3" / "run"), v5 = made.write(folder / "v5" / "run");
  made.write(v3 / "checkpoints" / "inner");            // inside a run: part of it
  made.write(folder / "1" / "2" / "3" / "4" / "run");  // too deep
  std::filesystem::create_directory_symlink(folder.path(), folder / "loop");
  EXPECT_THAT(find_runs(folder.path()), ElementsAre(v3, v5));
  EXPECT_THAT(find_runs(v3), ElementsAre(v3));
  EXPECT_THAT(find_runs(folder / "v5"), ElementsAre(v5));
  EXPECT_THAT(find_runs(v5 / "run.json"), ElementsAre(v5));
  EXPECT_THAT(error_of<Error>([&] { find_runs(folder / "none"); }), HasSubstr("no such file"));
  std::filesystem::create_directories(folder / "empty");
  EXPECT_THAT(error_of<Error>([&] { find_runs(folder / "empty"); }), HasSubstr("no run.json"));
}

// Later steps would stand too early among the anchors.
TEST(Run, MissingStepsForbidAlignmentByAnchors) {
  TempFolder folder;
  const std::filesystem::path whole = MadeRun{}.write(folder / "a"),
                              cut = MadeRun{}.write(folder / "b");
  std::string kept;
  std::istringstream lines(read_text(cut / "metrics.jsonl"));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (number != 40 && number != 41) kept += line + "\n";
  }
  write_file(cut / "metrics.jsonl", kept);
  const TrainingRun run = read_run(cut);
  EXPECT_TRUE(run.has_gaps);
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr("2 steps missing (the first: 40)")));
  EXPECT_FALSE(read_run(whole).has_gaps);
  EXPECT_EQ(compare({read_run(whole), run}, std::nullopt).axis, Axis::kStep);
  EXPECT_THROW(compare({read_run(whole), run}, Axis::kAnchors), Error);
}

// A run without a checkpoint does not know its data's fingerprint.
TEST(Run, AnUnknownFingerprintIsNoOther) {
  TempFolder folder;
  TrainingRun a = read_run(MadeRun{}.write(folder / "a")),
              b = read_run(MadeRun{}.write(folder / "b"));
  a.dataset = {{"fingerprint", "f1"}};
  EXPECT_THAT(compare({a, b}, std::nullopt).others[0].caveats.texts, ::testing::IsEmpty());
  b.dataset = {{"fingerprint", "f2"}};
  EXPECT_THAT(compare({a, b}, std::nullopt).others[0].caveats.texts,
              ElementsAre(HasSubstr("other training data")));
}

}  // namespace
}  // namespace dflash::runs
