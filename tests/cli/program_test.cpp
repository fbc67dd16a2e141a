// The program from outside: exit codes, messages, output. Runs the built binary.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/json.h"
#include "cli/run.h"

namespace dflash {
namespace {

using testing::TempFolder;

TEST(Program, HelpAndUnknownVerbs) {
  const auto help = run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"quickstart", "regenerate", "prepare", "capture", "train", "eval",
                           "generate", "chat", "serve", "export", "import", "inspect", "runs"}) {
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
    EXPECT_EQ(run(std::string(verb) + " --help").code, 0) << verb;
  }
  EXPECT_EQ(run("fly").code, 2);
  EXPECT_EQ(run("generate --no-such-option").code, 2);
}

TEST(Program, MisspeltNamesGetASuggestion) {
  const auto expect = [](const std::string& arguments, int code, const std::string& text) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments;
    EXPECT_EQ(outcome.err.find("error: "), 0u) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << arguments << "\n" << outcome.err;
  };
  expect("trian", 2, "no verb 'trian'; did you mean train?");
  expect("generate hi --proposr lookup", 2, "no option '--proposr'; did you mean --proposer?");
  expect("eval --tasks humanevl", 1, "did you mean humaneval?");
  expect("inspect txt foo", 1, "did you mean text?");
  const auto version = run("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.find("dflash-cpp 0."), 0u) << version.out;
  EXPECT_NE(version.out.find("LibTorch 2."), std::string::npos) << version.out;
}

// Before anything is loaded: none of the files named here exists.
TEST(Program, ImpossibleValuesAreRefusedAtOnce) {
  for (const char* arguments :
       {"regenerate --prompts p --samples 0", "regenerate --prompts p --limit -3",
        "regenerate --prompts p --max-seconds -1", "regenerate --prompts p --max-new 0",
        "regenerate --prompts p --max-new 99999999999999999999", "regenerate --prompts p --top-p 0",
        "prepare a.jsonl --max-documents -4", "capture --dataset d --taps 5,5",
        "capture --dataset d --taps=-1", "train --dataset d --minutes -4",
        "train --dataset d --clip -4", "train --dataset d --gamma nan",
        "train --dataset d --save-every -1", "train --dataset d --keep-last -1",
        "train --dataset d --validate-max-new 0", "train --dataset d --lr 1e999", "eval --limit -1",
        "generate hi --draft-tokens -3"}) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(", got "), std::string::npos) << arguments << "\n" << outcome.err;
  }
  for (const char* arguments :
       {"train --dataset d --loss ce+ce", "train --dataset d --steps 1 --minutes 1",
        "train --dataset d --epochs 0", "generate hi --proposer none --drafter nope"}) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find("expected "), std::string::npos) << outcome.err;
  }
}

TEST(Program, InspectCountsLinesAsRows) {
  TempFolder folder;
  testing::write_file(folder / "a.jsonl", "{\"prompt\": \"u\"}\n{\"other\": 1}\nx\n");
  testing::write_file(folder / "a.json", "{\"tau\": 1.5}");
  const auto lines = run("inspect --json " + (folder / "a.jsonl").string());
  const Json json = Json::parse(lines.out);
  EXPECT_EQ(json["rows"]["conversations"], 1);
  EXPECT_EQ(json["no_rows"]["no known fields"], 1);
  EXPECT_EQ(json["broken_lines"], 1);
  const auto report = run("inspect " + (folder / "a.json").string());
  EXPECT_NE(report.out.find("tau"), std::string::npos) << report.out;
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
  const auto good = run("inspect block --json --config " + (folder / "good.toml").string());
  ASSERT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(Json::parse(good.out)["blocks"][0]["slots"].size(), 2u);
  const auto wins =
      run("inspect block --json --block-size 3 --config " + (folder / "good.toml").string());
  EXPECT_EQ(Json::parse(wins.out)["blocks"][0]["slots"].size(), 3u);
  const auto refused = [&](const std::string& text) {
    testing::write_file(folder / "bad.toml", text);
    const auto outcome = run("inspect block --docs 3 --config " + (folder / "bad.toml").string());
    EXPECT_EQ(outcome.code, 2) << text;
    return outcome.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string unknown = refused("# a comment\nblok_size = 2\n");
  has(unknown, "bad.toml:2: 'blok_size' is no option of 'dflash-cpp inspect block'");
  has(unknown, "did you mean block-size?");
  has(refused("block-size = 2\n[more]\n"), "bad.toml:2: expected key = value, got a section");
  has(refused("layer = \"full\n"), "bad.toml:1: 'layer' begins a text that has no closing quote");
  has(refused("block-size = 99\n"), "bad.toml:1: --block-size: ");
  has(run("inspect block --docs 3 --config /tmp").err, "expected a TOML file, got a folder");
}

TEST(Program, InspectBlockDrawsTheRecipe) {  // R-MASK-1
  const auto outcome = run("inspect block --docs 3,2 --anchors 1,3 --block-size 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("block 0 slot 1 | 1 0 0 0 0 | 1 1 0 0"), std::string::npos);
  EXPECT_NE(outcome.out.find("block 1 slot 0 | 0 0 0 0 0 | 0 0 1 1"), std::string::npos);
}

// A result that cannot be written is a failure; closed streams end nothing.
TEST(Program, LostOutputIsAnError) {
  const std::string block = "inspect block --docs 3,2 --anchors 1,3 --block-size 2";
  EXPECT_EQ(run(block + " > /dev/full").code, 1);
  EXPECT_EQ(run(block + " >&-").code, 1);
  EXPECT_EQ(run(block + " 2>&- <&-; exit $?; true").code, 0);
  EXPECT_EQ(run("inspect nothing-here 2>&-; exit $?; true").code, 1);
}

TEST(Program, RunsAreListedAndCompared) {
  TempFolder folder;
  const auto write = [&](const char* name, double rate, double loss) {
    std::filesystem::create_directories(folder / name);
    const Json record = {{"format", "dflash-run"},
                         {"version", 1},
                         {"config", Json::object()},
                         {"header", {{"total_steps", 1}, {"options", {{"lr", rate}}}}}};
    testing::write_file(folder / name / "run.json", record.dump());
    testing::write_file(folder / name / "metrics.jsonl",
                        Json{{"step", 1}, {"anchors", 8}, {"loss", loss}}.dump() + "\n{\"st");
    return (folder / name).string();
  };
  const std::string both = write("v3", 0.001, 2.5) + " " + write("v5", 0.002, 3.5);
  const auto compared = run("runs --json " + both + " --out " + (folder / "r.json").string());
  ASSERT_EQ(compared.code, 0) << compared.err;
  const Json report = Json::parse(compared.out);
  EXPECT_EQ(report["settings_that_differ"][0]["name"], "options.lr");
  EXPECT_EQ(report["comparisons"][0]["first_other_step"], 1);
  EXPECT_EQ(Json::parse(testing::read_file(folder / "r.json")), report);
  const auto listed = run("runs " + folder.path().string());
  ASSERT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("2 runs"), std::string::npos) << listed.out;
  EXPECT_EQ(run("runs " + (folder / "none").string()).code, 1);
  EXPECT_EQ(run("runs").code, 2);
}

TEST(Program, InspectNamesFileAndLineOfABrokenRun) {
  TempFolder folder;
  testing::write_file(folder / "run.json", "{\"format\": \"dflash-run\"}");
  for (const char* line : {"[1]", "3", "null", "{\"step\": \"x\"}", "{\"step\": null}"}) {
    testing::write_file(folder / "metrics.jsonl", std::string("{\"step\": 1}\n") + line + "\n");
    const auto outcome = run("inspect " + folder.path().string());
    EXPECT_EQ(outcome.code, 1) << line;
    EXPECT_NE(outcome.err.find((folder / "metrics.jsonl").string() + ":2: "), std::string::npos)
        << line << "\n"
        << outcome.err;
  }
  std::filesystem::remove(folder / "metrics.jsonl");
  for (const char* file : {"run.json", "features.json"}) {
    testing::write_file(folder / file, "[]");
    const auto outcome = run("inspect " + folder.path().string());
    EXPECT_EQ(outcome.code, 1) << file;
    EXPECT_NE(outcome.err.find((folder / file).string() + ": expected an object"),
              std::string::npos)
        << outcome.err;
  }
}

TEST(Program, AThinkingModeThatTheTemplateLacksIsAnError) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  const std::string text = "inspect text hi --chat" + default_target();
  EXPECT_EQ(run(text + " --thinking auto").code, 0);
  for (const std::string& call : {text, "prepare nothing.jsonl --out nothing" + default_target(),
                                  "generate hi --max-new 1" + default_target()}) {
    for (const char* mode : {" --thinking on", " --thinking off"}) {
      const auto outcome = run(call + mode);
      EXPECT_EQ(outcome.code, 1) << call;
      EXPECT_NE(outcome.err.find("Q4_1.gguf: tokenizer.chat_template"), std::string::npos)
          << outcome.err;
      EXPECT_NE(outcome.err.find("hint: leave --thinking out"), std::string::npos) << outcome.err;
    }
  }
}

TEST(Program, InspectSaysWhatIsUnfinished) {
  TempFolder folder;
  const auto run_folder = folder / "run", step = run_folder / "checkpoints" / "step-000500";
  std::filesystem::create_directories(step / "model");
  testing::write_file(run_folder / "run.json", "{\"format\": \"dflash-run\"}");
  testing::write_file(run_folder / "metrics.jsonl", "{\"step\": 499}\n{\"step\": 500}\n{\"ste");
  const auto begun = run("inspect " + run_folder.string());
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_NE(begun.out.find("none yet"), std::string::npos) << begun.out;
  EXPECT_NE(begun.out.find("500"), std::string::npos) << begun.out;
  testing::write_file(step / "state.json", "{\"step\": 500, \"tau\": 1.5}");
  const auto torn = run("inspect --json " + step.string());
  ASSERT_EQ(torn.code, 0) << torn.err;
  EXPECT_EQ(Json::parse(torn.out)["state"]["step"], 500);
  EXPECT_NE(Json::parse(torn.out)["kind"].get<std::string>().find("unfinished"), std::string::npos);
}

// From text to a drafter on the default target, each result with the options that made it; the same
// command again goes on, another one is refused.
TEST(Program, ResultsCarryTheirOptions) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  TempFolder folder;
  const auto path = [&](const char* name) { return (folder / name).string(); };
  testing::write_file(folder / "p.jsonl", "{\"prompt\": \"Say hi.\"}\n{\"prompt\": \"Say n");
  const std::string out = path("a.jsonl");
  const auto answers = run("regenerate --max-new 12 --json --prompts " + path("p.jsonl") +
                           " --out " + out + default_target());
  ASSERT_EQ(answers.code, 0) << answers.err;
  EXPECT_EQ(Json::parse(answers.out)["answers"], 1);
  EXPECT_EQ(Json::parse(answers.out)["skipped"], 1) << "the torn line";
  const auto again = run("regenerate --json --config " + out + ".toml");  // all options are in it
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["resumed"], 1);

  const std::string held_out = " --held-out " + path("p.jsonl");
  ASSERT_EQ(run("prepare " + out + " --out " + path("set") + held_out + default_target()).code, 0);
  const std::string capturing =
      "capture --num-taps 2 --dataset " + path("set") + " --out " + path("features");
  ASSERT_EQ(run(capturing + default_target()).code, 0);
  const auto recaptured = run("capture --json --config " + path("features") + "/config.toml");
  ASSERT_EQ(recaptured.code, 0) << recaptured.err;  // an unset --taps stays unset
  EXPECT_EQ(Json::parse(recaptured.out)["taps"].size(), 2u);
  const std::string training = "train --layers 1 --block-size 4 --draft-vocab 64 --dataset " +
                               path("set") + " --features " + path("features") + " --out " +
                               path("run") + default_target() + " --json";
  const auto trained = run(training + " --steps 2");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto repeated = run(training + " --steps 2 --quiet");
  ASSERT_EQ(repeated.code, 0) << repeated.err;
  EXPECT_EQ(Json::parse(repeated.out)["steps"], 2);
  const auto other = run(training + " --steps 3");
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("steps=2"), std::string::npos) << other.err;
  const auto resumed = run(training + " --steps 3 --resume --window 16");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("--window is ignored"), std::string::npos) << resumed.err;
  EXPECT_TRUE(Json::parse(resumed.out)["tau"].is_null());
  const auto shorter = run(training + " --steps 2 --resume");
  EXPECT_EQ(shorter.code, 1);
  EXPECT_NE(shorter.err.find("3 steps done"), std::string::npos) << shorter.err;
  const auto evaluated = run("eval --tasks " + path("p.jsonl") + " --max-new 8 --out " +
                             path("eval.json") + default_target());
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const auto reevaluated = run("eval --config " + path("eval.json") + ".toml");
  EXPECT_EQ(reevaluated.code, 0) << reevaluated.err;
  for (const char* file : {"set/config.toml", "features/config.toml", "run/config.toml",
                           "eval.json.toml", "eval.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / file)) << file;
  }
}

// The plain proof takes --limit; a trace is recorded in the answer, however short it is.
TEST(Program, TheDoctorAsksWhatItIsTold) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  TempFolder folder;
  const auto path = [&](const char* name) { return (folder / name).string(); };
  testing::write_file(folder / "p.jsonl", R"({"prompt": "Say hi."}
{"prompt": "Say no."}
{"prompt": "Go."}
)");
  testing::write_file(folder / "none.jsonl", "");
  const std::string prompts = path("p.jsonl"), answers = path("a.jsonl"), set = path("set");
  for (const std::string& step :
       {"regenerate --max-new 12 --prompts " + prompts + " --out " + answers,
        "prepare " + answers + " --out " + set + " --held-out " + path("none.jsonl"),
        "train --steps 1 --layers 1 --block-size 4 --dataset " + set + " --out " + path("run")}) {
    const auto outcome = run(step + default_target());
    ASSERT_EQ(outcome.code, 0) << step << "\n" << outcome.err;
  }
  const std::string doctor =
      "doctor --json --drafter " + path("run") + " --tasks " + prompts + default_target();
  for (const auto& [limit, documents] : {std::pair("", 2), std::pair(" --limit 3", 3)}) {
    const auto proof = run(doctor + " --max-new 8" + limit);
    ASSERT_EQ(proof.code, 0) << proof.err << proof.out;
    EXPECT_EQ(Json::parse(proof.out)["documents"], documents);
  }
  const auto traced = run(doctor + " --max-new 256 --record " + path("trace.safetensors"));
  ASSERT_EQ(traced.code, 0) << traced.err;
  const Json trace = Json::parse(traced.out);
  const auto tokens = trace["tokens"].get<int64_t>(), anchor = trace["anchor"].get<int64_t>();
  EXPECT_LT(tokens, 128) << "a question with a short answer was wanted";
  EXPECT_GT(anchor, 20) << "inside the prompt";
  EXPECT_LT(anchor, tokens);
}

TEST(Program, LookupTextEqualsPlainText) {
  if (!has_default_target()) GTEST_SKIP() << "the default target is not installed (make setup)";
  const std::string prompt =
      "generate 'Write a Python function that adds two numbers.' --json --max-new 40 --log-probs "
      "2" +
      default_target();
  for (const char* extra : {"", " --temperature 0.8 --seed 5", " --dtype f32"}) {
    const auto plain = run(prompt + extra), lookup = run(prompt + extra + " --proposer lookup");
    ASSERT_EQ(plain.code, 0) << plain.err;
    ASSERT_EQ(lookup.code, 0) << lookup.err;
    const Json a = Json::parse(plain.out), b = Json::parse(lookup.out);
    EXPECT_EQ(a["ids"], b["ids"]) << extra;
    EXPECT_EQ(a["log_probs"], b["log_probs"]) << extra;  // R-SAM-8, on real weights
    EXPECT_EQ(a["log_probs"].size(), a["ids"].size());
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
