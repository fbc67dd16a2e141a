// The bundled drafter as the default of chat, generate, eval and doctor, with the default target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run.h"

namespace dflash {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A drafter of one training step in the place of the bundled one.
class BundledDrafter : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!has_default_target()) return;
    folder_ = new testing::TempFolder;
    testing::write_file(*folder_ / "p.jsonl", "{\"prompt\": \"Say hi.\"}\n");
    testing::write_file(*folder_ / "none.jsonl", "");
    for (const std::string& step :
         {"regenerate --max-new 12 --prompts " + path("p.jsonl") + " --out " + path("a.jsonl"),
          "prepare " + path("a.jsonl") + " --out " + path("set") + " --held-out " +
              path("none.jsonl"),
          "train --steps 1 --layers 1 --block-size 4 --draft-vocab 64 --dataset " + path("set") +
              " --out " + path("run"),
          "export " + path("run") + " --format zlab --dtype bf16 --out " + path("drafter")}) {
      const Outcome outcome = run(step + default_target());
      ASSERT_EQ(outcome.code, 0) << step << "\n" << outcome.err;
    }
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  void SetUp() override {
    if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  }

  static std::string path(const char* name) { return (*folder_ / name).string(); }
  static Outcome with_bundled(const std::string& arguments) {
    return run(arguments, "DFLASH_DRAFTER=" + path("drafter") +
                              " DFLASH_ASSETS=" + default_target_path().parent_path().string());
  }

 private:
  static inline testing::TempFolder* folder_ = nullptr;
};

TEST_F(BundledDrafter, GenerateTakesItAndTheTextStays) {
  const std::string call = "generate 'Count to nine.' --json --max-new 16";
  const auto plain = with_bundled(call + " --proposer none");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_THAT(plain.err, Not(HasSubstr("bundled")));
  for (const std::string& extra : {std::string(), std::string(" --proposer drafter"),
                                   std::string(" --proposer tree"), default_target()}) {
    const auto drafted = with_bundled(call + extra);
    ASSERT_EQ(drafted.code, 0) << drafted.err;
    EXPECT_THAT(drafted.err, HasSubstr("drafter: the bundled one, " + path("drafter")));
    EXPECT_THAT(Json::parse(drafted.out)["proposer"].get<std::string>(), HasSubstr("drafter"));
    EXPECT_EQ(Json::parse(drafted.out)["ids"], Json::parse(plain.out)["ids"]) << extra;
  }
}

TEST_F(BundledDrafter, IsLeftAloneWhereAnotherWayIsAskedFor) {
  const std::string call = "generate hi --json --max-new 4";
  for (const std::string& extra :
       {std::string(" --proposer lookup"), std::string(" --proposer lookup-tree"),
        " --drafter " + path("run")}) {
    const auto outcome = with_bundled(call + extra);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("bundled"))) << extra;
  }
  // The same bytes elsewhere are another target.
  std::filesystem::create_symlink(default_target_path(), path("link.gguf"));
  std::filesystem::copy_file(default_target_path(), path("other.gguf"));
  EXPECT_THAT(with_bundled(call + " --target " + path("link.gguf")).err, HasSubstr("bundled"));
  const auto other = with_bundled(call + " --target " + path("other.gguf"));
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, Not(HasSubstr("bundled")));
}

TEST_F(BundledDrafter, EvalChatAndDoctorTakeIt) {
  const auto report = with_bundled("eval --json --max-new 8 --tasks " + path("p.jsonl"));
  ASSERT_FALSE(report.out.empty()) << report.err;  // the exit code is 1 when no draft helped
  std::vector<std::string> names;
  const Json sets = Json::parse(report.out)["sets"];
  for (const Json& arm : sets[0]["arms"]) names.push_back(arm["name"]);
  EXPECT_THAT(names, ::testing::ElementsAre("bundled", "bundled (auto)", "prompt lookup"));
  const auto chat = with_bundled("chat --max-new 4 < " + path("p.jsonl"));
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_THAT(chat.err, HasSubstr("drafter: the bundled one"));
  const auto proof = with_bundled("doctor --json --max-new 8 --tasks " + path("p.jsonl"));
  EXPECT_EQ(proof.code, 0) << proof.err;
  EXPECT_TRUE(Json::parse(proof.out)["agrees"].get<bool>());
}

TEST_F(BundledDrafter, WithoutItEverythingGoesPlainly) {
  const auto outcome = run("generate hi --json --max-new 4" + default_target());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["acceptance"]["tau"], 1.0);
  EXPECT_EQ(run("generate hi --proposer drafter" + default_target()).code, 1);
  EXPECT_EQ(run("doctor" + default_target()).code, 1);
  const auto astray = run("generate hi", "DFLASH_DRAFTER=/no/such/drafter");
  EXPECT_EQ(astray.code, 1);
  EXPECT_THAT(astray.err, HasSubstr("DFLASH_DRAFTER: /no/such/drafter: expected a folder"));
}

// The one in the tree, where it is: found without being told, lossless, and of use.
TEST(BundledDrafterOfTheTree, IsFoundAndLossless) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  if (!std::filesystem::exists(testing::source_path("recipes/smollm2/drafter/config.json"))) {
    GTEST_SKIP() << "no recipes/smollm2/drafter";
  }
  const std::string call =
      "generate 'Write a Python function that adds two numbers.' --json --max-new 48" +
      default_target();
  const std::string here = "-u DFLASH_DRAFTER";
  const auto plain = run(call + " --proposer none", here), drafted = run(call, here);
  const auto chain = run(call + " --proposer drafter", here);
  for (const auto* outcome : {&plain, &drafted, &chain})
    ASSERT_EQ(outcome->code, 0) << outcome->err;
  EXPECT_THAT(drafted.err, HasSubstr("recipes/smollm2/drafter"));
  EXPECT_THAT(drafted.err, Not(HasSubstr("warning")));
  EXPECT_EQ(Json::parse(drafted.out)["ids"], Json::parse(plain.out)["ids"]);
  EXPECT_EQ(Json::parse(chain.out)["ids"], Json::parse(plain.out)["ids"]);
  EXPECT_GT(Json::parse(chain.out)["acceptance"]["tau"].get<double>(), 1.0);
}

}  // namespace
}  // namespace dflash
