// Settings that differ are named; tables and JSON say what was found.
#include "runs/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "made_run.h"

namespace dflash::runs {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MadeRun;
using ::testing::Not;
using testing::TempFolder;

class Reports : public ::testing::Test {
 protected:
  TrainingRun add(const std::string& name, const MadeRun& made) {
    return read_run(made.write(folder_ / name));
  }
  TempFolder folder_;
};

std::vector<std::string> names(const std::vector<Setting>& settings) {
  std::vector<std::string> out;
  for (const Setting& setting : settings) out.push_back(setting.name);
  return out;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

TEST_F(Reports, DifferingSettingsAreNamed) {
  MadeRun a, b;
  b.options["optimizer"]["lr"] = 0.001;
  b.options["loss"]["terms"].push_back({{"loss", "kl"}, {"weight", 0.5}});
  b.options["noise"] = "none";
  b.config["target"] = "llama, 2 blocks, kernels amx, 64 threads";  // the same target
  const auto found = compare_settings({add("a", a), add("b", b), add("c", a)});
  EXPECT_THAT(names(found.differing),
              ElementsAre("options.loss.terms[1].loss", "options.loss.terms[1].weight",
                          "options.noise", "options.optimizer.lr"));
  EXPECT_EQ(found.differing[3].to_json()["values"], Json::parse("[0.0006, 0.001, 0.0006]"));
  EXPECT_EQ(found.differing[2].to_json()["values"], Json::parse("[null, \"none\", null]"));
  EXPECT_FALSE(found.differing[3].differs(0, 2));
  EXPECT_EQ(found.num_same, 8u);
}

TEST_F(Reports, AnOptionAndWhatItResolvedToIsOneDifference) {
  MadeRun a, b;
  a.config["command_line"] = "lr=0.0006\nlayers=2\nout=\"a\"\njson=false\ninit='fresh'\n";
  b.config["command_line"] = "lr=0.001\nlayers=3\nout=\"b\"\njson=true\ninit=\"fresh\"\n";
  b.options["optimizer"]["lr"] = 0.001;
  a.config["drafter"] = {{"num_hidden_layers", 2}, {"layer_types", {"full_attention"}}};
  b.config["drafter"] = {{"num_hidden_layers", 3}, {"layer_types", Json::array()}};
  const auto found = compare_settings({add("a", a), add("b", b)});
  EXPECT_THAT(names(found.differing), ElementsAre("--layers", "--lr", "drafter.num_hidden_layers"));
}

TEST_F(Reports, WhatMustNotBeComparedIsSaid) {
  const auto texts = [&](const MadeRun& b) {
    const auto found = compare_settings({add("a", MadeRun()), add("b", b)});
    return caveats(found.differing, 0, 1);
  };
  MadeRun b;
  b.options["optimizer"]["lr"] = 1;
  EXPECT_TRUE(texts(b).texts.empty());
  b.options["loss"]["gamma"] = 7;
  EXPECT_FALSE(texts(b).loss_comparable);
  EXPECT_THAT(texts(b).texts, ElementsAre(HasSubstr("losses are defined differently")));
  b.config["target_fingerprint"] = "other";
  EXPECT_THAT(texts(b).texts, ElementsAre(HasSubstr("other targets")));
  const auto step = folder_ / "b" / "checkpoints" / "step-000100";
  for (const char* run : {"a", "b"}) {
    const auto known = folder_ / run / "checkpoints" / "step-000100";
    std::filesystem::create_directories(known);
    testing::write_file(known / "state.json", "{\"dataset\": {\"fingerprint\": \"y\"}}");
  }
  testing::write_file(folder_ / "a" / "checkpoints" / "step-000100" / "COMPLETE", "");
  testing::write_file(step / "state.json", "{\"dataset\": {\"fingerprint\": \"x\"}}");
  EXPECT_EQ(texts(b).texts.size(), 1u) << "an incomplete checkpoint does not exist";
  testing::write_file(step / "COMPLETE", "");
  EXPECT_THAT(texts(b).texts, ElementsAre(HasSubstr("other targets"), HasSubstr("other texts")));
}

TEST_F(Reports, IdenticalRunsAreSaidToBeIdentical) {
  const auto same = compare({add("a", MadeRun()), add("b", MadeRun())}, {});
  const std::string table = same.to_table();
  EXPECT_THAT(table, HasSubstr("No setting differs"));
  EXPECT_THAT(table, HasSubstr("the same bit for bit in all 100 common steps"));
  EXPECT_THAT(table, HasSubstr("loss        never apart\n"));
  const Json json = same.to_json();
  EXPECT_EQ(json["comparisons"][0]["same_until_step"], 100);
  EXPECT_EQ(json["comparisons"][0]["first_other_step"], nullptr);
  EXPECT_EQ(json["comparisons"][0]["loss"]["verdict"], "together");
  EXPECT_TRUE(json["settings_that_differ"].empty());
}

TEST_F(Reports, AWorseRunIsSaidToBeWorseFromItsStepOn) {
  MadeRun a, b;
  a.more_lines = "{\"step\": 100, \"validation\": {\"tau\": 1.5, \"slot_acceptance\": [0.4]}}\n";
  b.more_lines = "{\"step\": 100, \"validation\": {\"tau\": 1.25, \"slot_acceptance\": [0.3]}}\n";
  b.options["optimizer"]["lr"] = 0.001;
  b.loss = [](int64_t step) { return step <= 50 ? 1.0 : 1.5; };
  b.acceptance = [](int64_t step) { return step <= 60 ? 1.5 : 1.25; };
  const auto comparison = compare({add("a", a), add("b", b)}, {});
  const std::string table = comparison.to_table();
  for (const char* text : {"the same bit for bit until step 50; step 51 differs in loss",
                           "loss        apart from step 51 on, to the end: B above A by 0.5 +- 0",
                           "acceptance  apart from step 61 on, to the end: B below A by 0.25 +- 0",
                           "1.500", "1.250", "options.optimizer.lr"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
  const Json json = comparison.to_json();
  EXPECT_EQ(json["comparisons"][0]["loss"]["from_step"], 51);
  EXPECT_EQ(json["runs"][1]["validations"][0]["tau"], 1.25);
  EXPECT_EQ(json["runs"][1]["end"]["loss"], 1.5);
  EXPECT_EQ(json["curve"][0]["points"].size(), 2u);
}

TEST_F(Reports, TablesFitATerminal) {
  MadeRun a, b;
  b.config["note"] = std::string(30, 'x') + " " + std::string(60, 'y') + " end";
  a.more_lines = b.more_lines = "nonsense\n{\"step\": 100, \"validation\": {\"tau\": 1.5}}\n{\"s";
  for (size_t count = 1; count <= 4; ++count) {
    std::vector<TrainingRun> runs = {add("a", a)};
    while (runs.size() < count) runs.push_back(add(fmt::format("b{}", runs.size()), b));
    for (const std::string& line : lines(compare(runs, {}).to_table())) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
  std::vector<TrainingRun> many(kMostCompared, add("a", a));
  EXPECT_THAT(compare(many, {}).to_table(), HasSubstr("Z against A"));
  many.push_back(many[0]);
  EXPECT_THAT(testing::error_of<Error>([&] { compare(many, {}); }), HasSubstr("at most 26"));
}

TEST_F(Reports, ListsNameTheDamagedToo) {
  MadeRun made;
  made.total_steps = 150;
  made.more_lines = "{\"step\": 100, \"validation\": {\"tau\": 1.625}}\n";
  add("good", made);
  add("bad", made);
  testing::write_file(folder_ / "bad" / "run.json", "{\"format\": \"dflash-run\", \"version\": 9}");
  const auto list = list_runs(find_runs(folder_.path()));
  ASSERT_EQ(list.size(), 2u);
  const std::string table = list_table(list);
  for (const char* text : {"target: llama, 2 blocks", "100/150", "25.6k", "1.625", "stopped",
                           "damaged: ", "expected version 1, got 9", "2 runs"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
  EXPECT_THAT(table, Not(HasSubstr("hint")));
  const Json json = list_json(list);
  EXPECT_EQ(json["runs"][0]["state"], "damaged");
  EXPECT_EQ(json["runs"][1]["steps"], 100);
}

// Names and values come from other people's files: nothing of them steers the terminal.
TEST_F(Reports, NoControlCharacterReachesTheTerminal) {
  MadeRun a, b;
  b.config["t\x1b[2Jitle"] =
      "x\x1b]0;y\x07\nz\xc2\x9b"
      "1m\x7f";
  const auto runs = std::vector<TrainingRun>{add("a\x1b[31m", a), add("b\nb", b)};
  std::string text = compare(runs, {}).to_table();
  text += list_table(list_runs({folder_ / "a\x1b[31m", folder_ / "b\nb"}));
  for (const char bad : {'\x1b', '\x07', '\x7f', '\x9b'}) {
    EXPECT_EQ(text.find(bad), std::string::npos) << static_cast<int>(bad);
  }
  EXPECT_THAT(lines(text), Each(Not(::testing::StartsWith("z"))));
}

}  // namespace
}  // namespace dflash::runs
