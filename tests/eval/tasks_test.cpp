// Task files: prompts, conversations and HumanEval's lines.
#include "eval/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "support/paths.h"

namespace dflash::eval {
namespace {

std::filesystem::path file_with(const std::string& text) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "toy_tasks.jsonl";
  write_text(path, text);
  return path;
}

TEST(Tasks, PromptsConversationsAndHumanEval) {
  const TaskSet set = read_tasks(file_with(
      R"({"id": 4, "prompt": "Say hi."})"
      "\n"
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},)"
      R"( {"role": "assistant", "content": "old answer"}]})"
      "\n"
      R"({"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f"})"
      "\n"));
  EXPECT_EQ(set.name, "toy_tasks");
  ASSERT_EQ(set.tasks.size(), 3u);
  EXPECT_EQ(set.tasks[0].id, "4");
  EXPECT_EQ(set.tasks[0].conversation.messages[0].content, "Say hi.");
  EXPECT_EQ(set.tasks[1].id, "line 2");
  ASSERT_EQ(set.tasks[1].conversation.messages.size(), 2u);  // the old answer is not given away
  EXPECT_EQ(set.tasks[1].conversation.messages[1].content, "u");
  EXPECT_EQ(set.tasks[2].id, "HumanEval/0");
  EXPECT_EQ(set.tasks[2].conversation.messages[0].content, human_eval_message("def f():\n"));
  EXPECT_THAT(set.tasks[2].conversation.messages[0].content,
              ::testing::HasSubstr("```python\ndef f():\n```"));
}

TEST(Tasks, AnArrayOfTasks) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "toy_tasks.json";
  write_text(path, "[{\"prompt\": \"a\"},\n{\"prompt\": \"b\"}, {\"prompt");
  const TaskSet set = read_tasks(path);
  ASSERT_EQ(set.tasks.size(), 2u);
  EXPECT_EQ(set.tasks[1].id, "record 2");
  EXPECT_EQ(set.tasks[1].conversation.messages[0].content, "b");
}

TEST(Tasks, ToolsAndEarlierTurnsBelongToTheQuestion) {
  const TaskSet set = read_tasks(file_with(
      R"({"id": "t", "tools": [{"name": "f"}], "messages": [{"role": "user", "content": "u"},)"
      R"( {"role": "assistant", "thinking": "r", "tool_calls": [{"name": "f"}]},)"
      R"( {"role": "tool", "content": "3"}, {"role": "assistant", "content": "old"}]})"
      "\n"
      R"({"system": "s", "instruction": "q", "history": [["u1", "a1"]], "output": "old"})"
      "\n"));
  const text::Conversation& first = set.tasks.at(0).conversation;
  EXPECT_EQ(first.tools.dump(), R"([{"type":"function","function":{"name":"f"}}])");
  ASSERT_EQ(first.messages.size(), 3u);
  EXPECT_EQ(first.messages[1].more["reasoning_content"], "r");
  EXPECT_TRUE(first.messages[1].more.contains("tool_calls"));
  EXPECT_EQ(first.messages[2].role, "tool");
  EXPECT_EQ(set.tasks.at(1).conversation.messages.size(), 4u);  // system, u1, a1, q
}

TEST(Tasks, OddLinesAreLeftOutByName) {
  const TaskSet set = read_tasks(file_with("{\"prompt\": 7}\n{\"prompt\": \"a\"}\n"));
  ASSERT_EQ(set.tasks.size(), 1u);
  EXPECT_EQ(set.tasks[0].id, "line 2");
  EXPECT_THAT(set.left_out.by_reason().at("prompt or response is not text").first,
              ::testing::HasSubstr("toy_tasks.jsonl:1"));
}

TEST(Tasks, LimitAndErrors) {
  const auto path = file_with("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  EXPECT_EQ(read_tasks(path, 1).tasks.size(), 1u);
  EXPECT_EQ(read_tasks(path).tasks.size(), 2u);
  EXPECT_THROW(read_tasks(file_with("")), Error);
  EXPECT_THROW(read_tasks(file_with("{\"text\": \"a\"}\n")), Error);
  EXPECT_THROW(read_tasks(file_with("{\"messages\": []}\n")), Error);
  EXPECT_THROW(read_tasks("/nowhere/tasks.jsonl"), Error);
}

TEST(Tasks, HumanEvalOfTheTreeHas164) {
  const auto path = tree::root() / "assets/HumanEval.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  EXPECT_EQ(read_tasks(path).tasks.size(), 164u);
}

}  // namespace
}  // namespace dflash::eval
