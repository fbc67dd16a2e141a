// The program from outside: exit codes, messages, output. Runs the built binary.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/json.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

using testing::TempFolder;

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// Runs `dflash-cpp arguments` in a shell; stderr goes through a file.
Outcome run(const std::string& arguments) {
  TempFolder folder;
  const std::string err = (folder / "err").string();
  const std::string command = std::string(DFLASH_PROGRAM) + " " + arguments + " 2> " + err;
  Outcome outcome;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.out.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.err = testing::read_file(err);
  return outcome;
}

bool has_default_target() {
  return std::filesystem::exists(testing::source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf"));
}

std::string default_target() {
  return " --target " + testing::source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf").string();
}

TEST(Program, HelpAndUnknownVerbs) {
  const auto help = run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"quickstart", "regenerate", "prepare", "capture", "train", "eval",
                           "generate", "chat", "inspect"}) {
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
    EXPECT_EQ(run(std::string(verb) + " --help").code, 0) << verb;
  }
  EXPECT_EQ(run("fly").code, 2);
  EXPECT_EQ(run("generate --no-such-option").code, 2);
}

TEST(Program, ErrorsNameFileAndRemedy) {
  TempFolder folder;
  testing::write_file(folder / "broken.gguf", "GGUF\x03");
  testing::write_file(folder / "notes.txt", "hello");
  const std::string broken = (folder / "broken.gguf").string();
  for (const std::string& arguments :
       {"generate hi --target " + broken, "generate hi --target " + (folder / "none").string(),
        "inspect " + broken, "inspect " + (folder / "none").string(),
        "train --dataset " + (folder / "none").string() + " --target " + broken}) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find("error: "), std::string::npos) << arguments;
    EXPECT_NE(outcome.err.find(folder.path().string()), std::string::npos) << outcome.err;
  }
}

TEST(Program, ConfigFilesSetOptionsAndUnknownKeysAreErrors) {
  TempFolder folder;
  testing::write_file(folder / "good.toml", "block-size = 2\ndocs = \"3,2\"\nanchors = \"1,3\"\n");
  testing::write_file(folder / "bad.toml", "blok-size = 2\n");
  const auto good = run("inspect block --json --config " + (folder / "good.toml").string());
  ASSERT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(Json::parse(good.out)["blocks"][0]["slots"].size(), 2u);
  const auto wins =
      run("inspect block --json --block-size 3 --config " + (folder / "good.toml").string());
  EXPECT_EQ(Json::parse(wins.out)["blocks"][0]["slots"].size(), 3u);
  EXPECT_EQ(run("inspect block --docs 3 --config " + (folder / "bad.toml").string()).code, 2);
}

TEST(Program, InspectBlockDrawsTheRecipe) {  // R-MASK-1
  const auto outcome = run("inspect block --docs 3,2 --anchors 1,3 --block-size 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("block 0 slot 1 | 1 0 0 0 0 | 1 1 0 0"), std::string::npos);
  EXPECT_NE(outcome.out.find("block 1 slot 0 | 0 0 0 0 0 | 0 0 1 1"), std::string::npos);
}

TEST(Program, LookupTextEqualsPlainText) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  const std::string prompt =
      "generate 'Write a Python function that adds two numbers.' --json --max-new 40" +
      default_target();
  for (const char* extra : {"", " --temperature 0.8 --seed 5", " --dtype f32"}) {
    const auto plain = run(prompt + extra), lookup = run(prompt + extra + " --proposer lookup");
    ASSERT_EQ(plain.code, 0) << plain.err;
    ASSERT_EQ(lookup.code, 0) << lookup.err;
    const Json a = Json::parse(plain.out), b = Json::parse(lookup.out);
    EXPECT_EQ(a["ids"], b["ids"]) << extra;
    EXPECT_EQ(a["acceptance"]["tau"], 1.0);
  }
}

TEST(Program, WrongDrafterIsRefused) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  TempFolder folder;
  testing::write_file(folder / "config.json", "{\"architectures\": [\"DFlashDraftModel\"]}");
  const auto outcome = run("generate hi --drafter " + folder.path().string() + default_target());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("config.json"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace dflash
