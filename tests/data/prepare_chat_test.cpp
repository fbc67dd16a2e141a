// Conversations with reasoning and tools -> documents, under templates that show them and under
// such that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "data/prepare.h"
#include "data/templates.h"
#include "data/word_tokenizer.h"
#include "support/temp_folder.h"

namespace dflash::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Trained {
  Prepared prepared;
  std::vector<std::string> texts, answers;  // of each document: all of it, and what is supervised

  int64_t dropped_for(const std::string& reason) const {
    const auto& drops = prepared.report.drops();
    return drops.contains(reason) ? drops.at(reason).count : 0;
  }
};

Trained train_on(const std::string& chat_template, const std::vector<std::string>& lines,
                 const PrepareOptions& options = {}) {
  const testing::TempFolder folder;
  std::string file;
  for (const std::string& line : lines) file += line + "\n";
  write_text(folder / "in.jsonl", file);
  const WordTokenizer tokenizer(chat_template);
  const auto chat = text::ChatTemplate::for_tokenizer(tokenizer);
  Trained out{prepare({folder / "in.jsonl"}, tokenizer, &chat, options), {}, {}};
  for (int64_t d = 0; d < out.prepared.dataset.num_documents(); ++d) {
    const auto ids = out.prepared.dataset.document_ids(d);
    const auto mask = out.prepared.dataset.document_mask(d);
    std::vector<int64_t> answer;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (mask[i] != 0) answer.push_back(ids[i]);
    }
    const auto shown = [&](const std::vector<int64_t>& part) {
      return replaced(tokenizer.decode(part, /*skip_special=*/false), "\n", "/");
    };
    out.texts.push_back(shown({ids.begin(), ids.end()}));
    out.answers.push_back(shown(answer));
  }
  return out;
}

const char* const kTwoTurns =
    R"({"id": "t", "messages": [{"role": "user", "content": "u1"},
        {"role": "assistant", "reasoning": "r1", "content": "x"},
        {"role": "user", "content": "u2"},
        {"role": "assistant", "reasoning_content": "r2", "content": "y"}]})";

std::string one_line(const std::string& json) {
  return OrderedJson::parse(json).dump();
}

// R-PREP-4, PREP-09: a document an answer, each after the text that serving would put before it.
TEST(PrepareChat, RewrittenTurnsTakeADocumentAnAnswer) {
  const Trained out = train_on(agent_template(), {one_line(kTwoTurns)});
  EXPECT_THAT(out.answers, ElementsAre("<think> / r1 / </think> / / x <|im_end|> ",
                                       "<think> / r2 / </think> / / y <|im_end|> "));
  ASSERT_EQ(out.texts.size(), 2U);
  EXPECT_THAT(out.texts[0], AllOf(HasSubstr("u1"), Not(HasSubstr("u2"))));
  EXPECT_THAT(out.texts[1], AllOf(HasSubstr("assistant / x <|im_end|>"), Not(HasSubstr("r1"))));
  const PrepareReport& report = out.prepared.report;
  EXPECT_EQ(report.rows, 1);
  EXPECT_EQ(report.more_rows, 1);
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(report.conversations, 1);
  EXPECT_THAT(report.text(), HasSubstr("from 1 conversation\n"));
  EXPECT_EQ(report.to_json()["conversations"], 1);
  EXPECT_NE(out.prepared.dataset.keys[0], out.prepared.dataset.keys[1]);
}

TEST(PrepareChat, DocumentsOfAConversationAreExaminedOneByOne) {
  const std::string other = replaced(replaced(kTwoTurns, "u2", "v2"), "\"y\"", "\"z\"");
  const std::vector<std::string> lines = {one_line(kTwoTurns), one_line(other)};
  const PrepareReport report = train_on(agent_template(), lines).prepared.report;
  EXPECT_EQ(report.documents, 3);  // the first turn is the same in both
  EXPECT_EQ(report.drops().at("duplicate").count, 1);
  EXPECT_EQ(report.conversations, 2);
  EXPECT_EQ(report.documents + report.dropped(), report.rows + report.pieces + report.more_rows);
  PrepareOptions options;
  options.max_documents = 1;
  const PrepareReport one = train_on(agent_template(), lines, options).prepared.report;
  EXPECT_EQ(one.documents + one.dropped(), one.rows + one.pieces + one.more_rows);
  options.shuffle = true;
  const PrepareReport drawn = train_on(agent_template(), lines, options).prepared.report;
  EXPECT_EQ(drawn.conversations, 1);
  EXPECT_EQ(drawn.documents + drawn.dropped(), drawn.rows + drawn.pieces + drawn.more_rows);
}

std::string tool_line(const std::string& tools) {
  return one_line(R"({"tools": )" + tools + R"(, "messages": [{"role": "user", "content": "sum"},
      {"role": "assistant", "content": "", "reasoning_content": "r1",
       "tool_calls": [{"name": "add", "arguments": "{\"b\": 2, \"a\": 1}"}]},
      {"role": "tool", "content": "3"}, {"role": "tool", "content": "four"},
      {"role": "assistant", "content": "It is 3", "reasoning_content": "r2"}]})");
}

// PREP-14: reasoning of a loop of tools stays; PREP-08: neighbouring tool messages are one turn.
TEST(PrepareChat, ALoopOfToolsIsOneDocument) {
  const Trained out = train_on(agent_template(), {tool_line(R"([{"name": "add"}])")});
  EXPECT_THAT(out.answers,
              ElementsAre("<think> / r1 / </think> / / / <call>add {\"b\": 2, \"a\": 1} </call> "
                          "<|im_end|> <think> / r2 / </think> / / It is 3 <|im_end|> "));
  EXPECT_THAT(out.texts[0], HasSubstr("user / <tool_response> / 3 / </tool_response> / "
                                      "<tool_response> / four / </tool_response> <|im_end|>"));
  EXPECT_EQ(out.prepared.report.more_rows, 0);
}

TEST(PrepareChat, ToolsInEverySpellingHaveTheSameIds) {  // R-PREP-6
  const std::string bare = R"({"name": "add", "parameters": {"b": 1, "a": {"d": 2, "c": 3}}})";
  const std::string wrapped = R"({"type": "function", "function": )" + bare + "}";
  const auto text = [](const std::string& json) { return Json(json).dump(); };
  const Trained first = train_on(agent_template(), {tool_line("[" + wrapped + "]")});
  EXPECT_THAT(first.texts, ElementsAre(HasSubstr("tools / " + wrapped)));  // PREP-16
  for (const std::string& spelling :
       {"[" + bare + "]", text("[" + wrapped + "]"), "[" + text(wrapped) + "]",
        R"([{"function": )" + bare + R"(, "type": "function"}])"}) {
    const Trained other = train_on(agent_template(), {tool_line(spelling)});
    EXPECT_EQ(other.prepared.dataset.ids, first.prepared.dataset.ids) << spelling;
    EXPECT_EQ(other.prepared.dataset.loss_mask, first.prepared.dataset.loss_mask) << spelling;
  }
}

// PREP-02, PREP-04: what the template would drop without a word takes the whole record with it.
TEST(PrepareChat, WhatTheTemplateLeavesOutIsCounted) {
  const std::string plain = R"({"prompt": "u", "response": "x y"})";
  const std::string calls = R"({"messages": [{"role": "user", "content": "u"},
      {"role": "assistant", "tool_calls": [{"name": "x"}]}]})";
  // The reasoning is also what the answer says: that does not make it shown.
  const std::string reasoning = R"({"messages": [{"role": "user", "content": "u"},
      {"role": "assistant", "content": "x y", "thinking": "x"}]})";
  const std::string tools = R"({"tools": [{"name": "x"}], "messages": [
      {"role": "user", "content": "u x"}, {"role": "assistant", "content": "x y"}]})";
  const std::string unread = R"({"tools": "x", "messages": [
      {"role": "user", "content": "u x"}, {"role": "assistant", "content": "x y"}]})";
  const Trained out =
      train_on(smollm2_template(), {plain, one_line(calls), one_line(reasoning),
                                    one_line(kTwoTurns), one_line(tools), one_line(unread)});
  EXPECT_THAT(out.answers, ElementsAre("x y <|im_end|> "));
  EXPECT_EQ(out.dropped_for("has reasoning, which the chat template does not render"), 2);
  EXPECT_EQ(out.dropped_for("has tool calls, which the chat template does not render"), 1);
  EXPECT_EQ(out.dropped_for("has tools, which the chat template does not render"), 1);
  EXPECT_EQ(out.dropped_for("tools that cannot be read"), 1);  // PREP-15: the run goes on
  EXPECT_EQ(out.prepared.report.dropped(), 5);
}

// What stands beside the turns is trained on as if it had stood in them.
TEST(PrepareChat, SystemAndHistoryOfARecordAreTurns) {
  const std::string beside =
      R"({"system": "s", "history": [["u1", "a1"]], "instruction": "u2", "output": "x y"})";
  const std::string differ = R"({"system": "t", "messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": "u"}, {"role": "assistant", "content": "x y"}]})";
  const std::string picture = R"({"prompt": "u", "response": "x y", "images": ["a.png"]})";
  const Trained out = train_on(smollm2_template(), {beside, one_line(differ), picture});
  EXPECT_THAT(out.texts, ElementsAre("<|im_start|> system / s <|im_end|> / <|im_start|> user / u1 "
                                     "<|im_end|> / <|im_start|> assistant / a1 <|im_end|> / "
                                     "<|im_start|> user / u2 <|im_end|> / "
                                     "<|im_start|> assistant / x y <|im_end|> / "));
  EXPECT_THAT(out.answers, ElementsAre("a1 <|im_end|> x y <|im_end|> "));
  EXPECT_EQ(out.dropped_for("two system messages that differ"), 1);
  EXPECT_EQ(out.dropped_for("something that is no text"), 1);
}

// No template rewrites anything here: turns, empty reasoning and tool messages in one document.
TEST(PrepareChat, ChatMlKeepsAConversationInOneDocument) {
  const std::string line = R"({"messages": [{"role": "user", "content": "u"},
      {"role": "assistant", "content": "call f", "reasoning_content": "", "reasoning": "z"},
      {"role": "observation", "content": "3"}, {"role": "assistant", "content": "so 3"},
      {"role": "user", "content": "v"}, {"role": "assistant", "content": "w"}]})";
  const Trained out = train_on(smollm2_template(), {one_line(line)});
  EXPECT_THAT(out.answers, ElementsAre("call f <|im_end|> so 3 <|im_end|> w <|im_end|> "));
  EXPECT_THAT(out.texts[0], HasSubstr("<|im_start|> tool / 3 <|im_end|>"));
  EXPECT_EQ(out.prepared.report.conversations, 1);
}

}  // namespace
}  // namespace dflash::data
