// plan from outside: the known budget of a 27 B target, answers about memory, and predictions
// beside what real training processes take (five configurations: bench/plan_check.py).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "base/json.h"
#include "data/dataset.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

using testing::TempFolder;

struct Outcome {
  int code = -1;
  int64_t peak_bytes = 0;
  std::string out, err;
};

/// Runs the program; the kernel says its largest resident set.
Outcome run(const std::string& arguments) {
  const TempFolder folder;
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const std::string command =
      "exec " + tree::program().string() + " " + arguments + " > " + out + " 2> " + err;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ::wait4(pid, &status, 0, &usage);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .peak_bytes = usage.ru_maxrss * 1024,
          .out = testing::read_file(out),
          .err = testing::read_file(err)};
}

Json plan(const std::string& arguments) {
  const Outcome outcome = run("plan --json --gflops 400000 --gbs 4000 " + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

int64_t bytes_of(const Json& plan, const std::string& what) {
  for (const Json& term : plan.at("memory")) {
    if (term.at("what") == what) return term.at("bytes");
  }
  ADD_FAILURE() << "no " << what;
  return 0;
}

std::string case_path(const std::string& name) {
  return testing::source_path("tests/cases/plan/" + name).string();
}

const std::string kLargeTarget = " --target " + case_path("qwen3.6-27b/config.json");
const std::string kLargeDrafter = " --init-from " + case_path("qwen3.6-27b-drafter");

// FIELD: five taps of 5120 at 49,152 tokens are about 0.5 GB each in bf16, six captures 3 GB; the
// drafter has 1.73 B parameters. No weights are here: sizes come from two config.json.
TEST(Plan, BudgetOfQwen36With27B) {
  const std::string common = kLargeTarget + kLargeDrafter +
                             " --dtype bf16 --features f --loss kl --row-tokens 49152 "
                             "--document-tokens 49152 ";
  const Json one_row = plan(common + "--anchors-per-step 64 --memory 96GB");
  EXPECT_NEAR(one_row["drafter_parameters"].get<double>(), 1.73e9, 0.005e9);
  const int64_t taps = bytes_of(one_row, "taps of a row");
  EXPECT_EQ(taps, 5LL * 5120 * 49152 * 2);
  EXPECT_NEAR(static_cast<double>(taps) / 5, 0.5e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(bytes_of(one_row, "stored features")), 3.0e9, 0.03e9);
  EXPECT_NEAR(static_cast<double>(bytes_of(one_row, "target, packed for its kernels")), 48.7e9,
              0.5e9);
  EXPECT_EQ(one_row["fits"], true);
  // Several rows a step: the gradients of the first are there when the second is at its fullest.
  // How much that takes depends on the CPU's kernels; on some it stays below 96 GB.
  const int64_t more = plan(common + "--anchors-per-step 256")["needed_bytes"];
  EXPECT_GT(more, one_row["needed_bytes"].get<int64_t>() + 4'000'000'000);
  const Json four_rows = plan(common + "--anchors-per-step 256 --memory " +
                              std::to_string(more / 1'000'000'000) + "GB");
  EXPECT_EQ(four_rows["fits"], false);
  ASSERT_FALSE(four_rows["changes"].empty());
  EXPECT_LT(four_rows["changes"].back()["needed_bytes"], more / 1'000'000'000 * 1'000'000'000);
}

TEST(Plan, TheTableNamesPartsAndAnswers) {
  const Outcome outcome =
      run("plan --gflops 400000 --gbs 4000 --dtype bf16 --memory 64GB" + kLargeTarget);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* word : {"weights", "optimizer", "activations", "logits chunk", "features",
                           "cache", "does not fit", "time of a step", "anchors/s"}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word << "\n" << outcome.out;
  }
  EXPECT_EQ(run("plan --memory 96elephants" + kLargeTarget).code, 1);
  EXPECT_EQ(run("plan --target " + case_path("none")).code, 1);
}

TEST(Plan, RatesAreMeasuredWhereNoneAreGiven) {
  const Outcome outcome = run("plan --json" + kLargeTarget);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json rates = Json::parse(outcome.out)["rates"];
  EXPECT_EQ(rates["measured"], true);
  EXPECT_GT(rates["gflops"].get<double>(), 0.5);
  EXPECT_GT(rates["gbs"].get<double>(), 0.1);
}

/// Documents of random ids, two thirds of them supervised.
data::Dataset documents(int64_t count, int64_t tokens) {
  data::Dataset set;
  for (int64_t d = 0; d < count; ++d) {
    data::Document document;
    for (int64_t t = 0; t < tokens; ++t) {
      document.ids.push_back(100 + (d * 7919 + t * 104729) % 40000);
      document.loss_mask.push_back(t > tokens / 3 ? 1 : 0);
    }
    set.add(document);
  }
  return set;
}

/// Within 10 % on real weights: with a tiny target the program itself would be all there is.
TEST(Plan, PredictionsAreWithinATenthOfTheMeasured) {
  const auto target = testing::source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(target)) GTEST_SKIP() << "run 'make setup' for the default target";
  const TempFolder folder;
  data::save_dataset(folder / "set", documents(4, 300));
  const std::string common =
      " --target " + target.string() + " --dataset " + (folder / "set").string() + " --steps 2";
  for (const std::string more : {" --layers 1 --anchors-per-document 16 --row-tokens 600",
                                 " --layers 3 --optimizer adamw --dtype f32 --draft-vocab 4096"}) {
    const Json predicted = plan(common + more);
    const Outcome trained = run("train --quiet --out " + (folder / "run").string() + common + more);
    ASSERT_EQ(trained.code, 0) << trained.err;
    std::filesystem::remove_all(folder / "run");
    const auto expected = predicted["peak_bytes"].get<double>();
    const auto peak = static_cast<double>(trained.peak_bytes);
    EXPECT_NEAR(expected / peak, 1.0, 0.10) << more << ": " << expected << " and " << peak;
  }
}

}  // namespace
}  // namespace dflash
