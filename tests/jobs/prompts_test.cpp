// Prompt files as somebody writes them by hand -> the ids that the target is asked with.
#include "jobs/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/templates.h"
#include "jobs/fixtures.h"
#include "jobs/regenerate.h"
#include "support/temp_folder.h"

namespace dflash::jobs {
namespace {

using ::testing::HasSubstr;

std::vector<Prompt> prompts_of(const std::string& lines) {
  const testing::TempFolder folder;
  testing::write_file(folder / "p.jsonl", lines);
  return read_prompts(folder / "p.jsonl").prompts;
}

Prompt prompt_of(const std::string& line) {
  return prompts_of(line + "\n").at(0);
}

Model agent_model() {
  return tiny_model(std::make_shared<WordTokenizer>(agent_template()));
}

std::string asked(const Model& model, const Prompt& prompt) {
  const EncodedPrompt encoded = encode_prompt(model, prompt);
  EXPECT_EQ(encoded.refused, "") << encoded.detail;
  return model.tokenizer->decode(encoded.ids, /*skip_special=*/false);
}

/// The words of a text, as `asked` shows them.
std::string words(const Model& model, const std::string& text) {
  return model.tokenizer->decode(model.tokenizer->encode(text), /*skip_special=*/false);
}

const char* const kTools = R"("tools": [{"name": "add", "parameters": )"
                           R"({"type": "object", "properties": {"b": {}, "a": {}}}}])";

// The keys of a tool keep the order of the file (PREP-16).
TEST(PromptFiles, ToolsAreAskedWith) {
  const Model model = agent_model();
  EXPECT_EQ(asked(model, prompt_of(R"({"prompt": "1 + 2?", )" + std::string(kTools) + "}")),
            words(model,
                  "<|im_start|>tools\n"
                  R"({"type": "function", "function": {"name": "add", "parameters": )"
                  R"({"type": "object", "properties": {"b": {}, "a": {}}}}})"
                  "\n<|im_end|>\n<|im_start|>user\n1 + 2?<|im_end|>\n<|im_start|>assistant\n"));
}

// As ShareGPT is published: one array, here cut off in its third record.
TEST(PromptFiles, ATornArrayGivesItsWholePrompts) {
  const testing::TempFolder folder;
  testing::write_file(folder / "p.json", R"([
  {"id": "a", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "r"}]},
  {"id": "b", "prompt": "p ]"},
  {"id": "c", "prom)");
  const PromptFile file = read_prompts(folder / "p.json");
  ASSERT_EQ(file.prompts.size(), 2U);
  EXPECT_EQ(file.prompts[0].conversation.messages.size(), 1U);
  EXPECT_EQ(file.prompts[1].conversation.messages[0].content, "p ]");
  EXPECT_EQ(file.left_out.by_reason().at("cut off at the end of the file").count, 1);
}

// Raw ShareGPT: talks that begin in the middle, empty ones, ids given twice, damage between
// records.
TEST(PromptFiles, RecordsThatAreNoPromptAreCountedByReason) {
  const testing::TempFolder folder;
  const std::string path = (folder / "p.json").string();
  testing::write_file(path, R"([
  {"id": "a", "conversations": [{"from": "gpt", "value": "r"}, {"from": "human", "value": "q"}]},
  {"id": "b", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "r"}]},
  {"id": "c", "conversations": []},
  {"id": "d", "conversations": [{"from": "human", "value": "q"}, {"from": "human", "value": "r"}]},
  {"id": "b", "conversations": [{"from": "human", "value": "other"}]},
  {"id": "e", "prompt": "p", "kind": 3},
  {"id": "f", "prompt": "last"}
])");
  const PromptFile file = read_prompts(path);
  ASSERT_EQ(file.prompts.size(), 2U);
  EXPECT_EQ(file.prompts[0].id, "b");
  EXPECT_EQ(file.prompts[0].conversation.messages[0].content, "q");
  EXPECT_EQ(file.prompts[1].id, "f");
  std::map<std::string, int64_t> counts;
  for (const auto& [reason, drop] : file.left_out.by_reason()) counts[reason] = drop.count;
  const std::map<std::string, int64_t> expected = {{"broken order of roles", 2},
                                                   {"empty conversation", 1},
                                                   {"the id of an earlier record", 1},
                                                   {"kind is not text", 1}};
  EXPECT_EQ(counts, expected);
  EXPECT_THAT(file.left_out.by_reason().at("broken order of roles").first,
              ::testing::StartsWith(path + ": record 1: "));
  EXPECT_EQ(read_prompts(path, 1).left_out.total(), 1) << "what stands behind the last one taken";
}

TEST(PromptFiles, AFileWithoutAPromptIsAnError) {
  const testing::TempFolder folder;
  testing::write_file(folder / "p.jsonl",
                      "{\"text\": \"b\"}\n{\"prompt\": 7}\nx\n{\"prompt\": 8}\n");
  EXPECT_THAT(testing::error_of<Error>([&] { read_prompts(folder / "p.jsonl"); }),
              ::testing::AllOf(HasSubstr("no prompt in "), HasSubstr("p.jsonl:1"),
                               HasSubstr("prompt or response is not text: 2 (the first: "),
                               HasSubstr("p.jsonl:2"), HasSubstr("broken line: 1"),
                               HasSubstr("hint: a record is {\"prompt\": \"...\"}")));
  testing::write_file(folder / "p.jsonl", "");
  EXPECT_THROW(read_prompts(folder / "p.jsonl"), Error);
}

// PREP-14: the reasoning of a loop of tools stays in it; the last answer is the target's own.
TEST(PromptFiles, EarlierTurnsAreAskedWith) {
  const Model model = agent_model();
  const std::string line =
      R"({"system": "Be brief.", "messages": [{"role": "user", "content": "sum"}, )"
      R"({"role": "assistant", "content": "So:", "reasoning": "r1", )"
      R"("tool_calls": [{"name": "add", "arguments": "{\"b\": 2, \"a\": 1}"}]}, )"
      R"({"role": "tool", "content": "3"}, {"role": "assistant", "content": "old"}]})";
  EXPECT_EQ(asked(model, prompt_of(line)),
            words(model,
                  "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nsum<|im_end|>\n"
                  "<|im_start|>assistant\n<think>\nr1\n</think>\n\nSo:\n"
                  "<call>add {\"b\": 2, \"a\": 1}</call><|im_end|>\n"
                  "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
                  "<|im_start|>assistant\n"));
  const std::string talk =
      R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}, )"
      R"({"from": "human", "value": "v"}, {"from": "gpt", "value": "b"}]})";
  EXPECT_EQ(asked(model, prompt_of(talk)),
            words(model,
                  "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
                  "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n"));
}

// A template without tools would ask another question: such a prompt is counted, not asked.
TEST(PromptFiles, WhatTheTemplateHidesIsRefusedByName) {
  const Model model = tiny_model();
  const auto prompts =
      prompts_of("{\"prompt\": \"w1\"}\n{\"prompt\": \"w2\", " + std::string(kTools) +
                 "}\n"
                 R"({"messages": [{"role": "user", "content": "w3"}, {"role": "assistant", )"
                 R"("thinking": "r", "content": "a"}, {"role": "user", "content": "w4"}]})"
                 "\n"
                 R"({"messages": [{"role": "user", "content": "w5"}, {"role": "assistant", )"
                 R"("function_call": {"name": "f"}}, {"role": "function", "content": "3"}]})"
                 "\n");
  const testing::TempFolder folder;
  RegenerateOptions options;
  options.out = folder / "answers.jsonl";
  options.max_new_tokens = 4;
  const auto report = regenerate(model, prompts, options);
  EXPECT_EQ(report.answers, 1);
  const std::map<std::string, int64_t> expected = {
      {"has tools, which the chat template does not render", 1},
      {"has reasoning, which the chat template does not render", 1},
      {"has tool calls, which the chat template does not render", 1}};
  EXPECT_EQ(report.skipped, expected);
}

// A resumed run knows its prompts again: first half of the SHA-256 of the length and bytes of each
// of "prompt", "system", "s", "user", "u" (lengths of eight bytes, the lowest first).
TEST(PromptFiles, IdsOfWhatIsSaid) {
  const char* const plain = "ced00b37098623075f08675a691e0a82";
  const std::string turns = R"("messages": [{"role": "system", "content": "s"}, )"
                            R"({"role": "user", "content": "u"}])";
  EXPECT_EQ(prompt_of("{" + turns + "}").id, plain);
  EXPECT_EQ(prompt_of(R"({"kind": "k", "tools": [], )" + turns + "}").id, plain);
  EXPECT_EQ(prompt_of(R"({"system": "s", "prompt": "u", "response": "a"})").id, plain);
  EXPECT_EQ(prompt_of(R"({"prompt": "a"})").id, "8a84117a77140ec2169d9a23ff3f97f7");
  EXPECT_EQ(prompt_of(R"({"id": 4, "prompt": "a"})").id, "4");
  const auto many = prompts_of(R"({"prompt": "a"})"
                               "\n"
                               R"({"prompt": "a", "tools": [{"name": "f"}]})"
                               "\n"
                               R"({"prompt": "a", "tools": [{"name": "g"}]})"
                               "\n"
                               R"({"prompt": "a", "functions": [{"function": {"name": "g"}}]})"
                               "\n"
                               R"({"messages": [{"role": "user", "name": "n", "content": "a"}]})"
                               "\n");
  EXPECT_EQ(many.size(), 4u);  // the third and fourth say the same
}

TEST(PromptFiles, OddLinesAreLeftOut) {
  const std::string good = "{\"prompt\": \"a\"}\n";
  for (const std::string odd :
       {R"({"messages": [{"role": "user", "content": "u", "images": ["a.png"]}]})",
        R"({"prompt": "a", "tools": "x"})", R"({"prompt": "a", "kind": 3})", R"(["a"])", "{\"pro",
        R"({"messages": [{"role": "user", "content": "u"}, {"role": "user", "content": "v"}]})"}) {
    EXPECT_EQ(prompts_of(odd + "\n" + good).size(), 1U) << odd;
  }
}

}  // namespace
}  // namespace dflash::jobs
