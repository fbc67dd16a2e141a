// regenerate: exact ids, batches and resuming change nothing, settings are compared.
#include "jobs/regenerate.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/output.h"
#include "jobs/fixtures.h"
#include "support/temp_folder.h"

namespace dflash::jobs {
namespace {

using testing::TempFolder;

RegenerateOptions options_for(const TempFolder& folder, int64_t batch) {
  RegenerateOptions options;
  options.out = folder / "answers.jsonl";
  options.max_new_tokens = 12;
  options.samples = 2;
  options.batch = batch;
  return options;
}

/// Answer line by id.
std::map<std::string, Json> answers(const std::filesystem::path& path) {
  std::map<std::string, Json> found;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    found[json["id"]] = json;
  }
  return found;
}

TEST(Regenerate, BatchesGiveTheSameAnswers) {
  const Model model = tiny_model();
  TempFolder alone, together;
  regenerate(model, tiny_prompts(5), options_for(alone, 1));
  const auto report = regenerate(model, tiny_prompts(5), options_for(together, 8));
  EXPECT_EQ(report.answers, 10);
  EXPECT_FALSE(report.stopped);
  const auto a = answers(alone / "answers.jsonl"), b = answers(together / "answers.jsonl");
  ASSERT_EQ(a.size(), 10u);
  EXPECT_EQ(a, b);
  EXPECT_NE(a.at("p0#0")["answer_ids"], a.at("p0#1")["answer_ids"]) << "sample 1 is drawn";
}

TEST(Regenerate, GoesOnAfterATornLine) {
  const Model model = tiny_model();
  TempFolder whole, torn;
  regenerate(model, tiny_prompts(4), options_for(whole, 4));
  const auto path = torn / "answers.jsonl";
  regenerate(model, tiny_prompts(4), options_for(torn, 4));
  const std::string text = read_text(path);
  const size_t second_line = text.find('\n', text.find('\n') + 1);
  std::filesystem::resize_file(path, second_line + 20);  // two whole answers and a torn one
  const auto report = regenerate(model, tiny_prompts(4), options_for(torn, 4));
  EXPECT_EQ(report.resumed, 2);
  EXPECT_EQ(report.answers, 6);
  EXPECT_EQ(answers(path), answers(whole / "answers.jsonl"));
}

// Ids 1, 2, ... are in every file: the answer to another question is not this one's.
TEST(Regenerate, AnotherPromptOfAKnownIdIsRefused) {
  const Model model = tiny_model();
  TempFolder folder;
  auto prompts = tiny_prompts(3);
  regenerate(model, prompts, options_for(folder, 4));
  EXPECT_EQ(regenerate(model, prompts, options_for(folder, 4)).answers, 0);
  std::swap(prompts[0].conversation, prompts[1].conversation);
  const std::string message =
      testing::error_of<Error>([&] { regenerate(model, prompts, options_for(folder, 4)); });
  EXPECT_NE(message.find("is to another prompt of that id"), std::string::npos) << message;
}

// One prompt that cannot be answered is counted, and nothing of the others is lost.
TEST(Regenerate, SkipsPromptsThatCannotBeAnswered) {
  const Model model = tiny_model();
  TempFolder folder;
  auto prompts = tiny_prompts(4);
  std::string words;
  for (int64_t i = 0; i <= model.target->config().max_positions; ++i) words += "w1 ";
  prompts[1].conversation.messages[0].content = words;
  prompts[2].conversation.messages[0].role = "robot";
  auto options = options_for(folder, 4);
  auto report = regenerate(model, {prompts[0], prompts[1], prompts[2]}, options);
  EXPECT_EQ(report.answers, 2);
  EXPECT_FALSE(report.stopped);
  const std::map<std::string, int64_t> expected = {
      {"longer than the context", 1}, {"refused by the chat template or tokenizer", 1}};
  EXPECT_EQ(report.skipped, expected);
  report = regenerate(model, prompts, options);  // goes on: one new prompt, the same two skipped
  EXPECT_EQ(report.answers, 2);
  EXPECT_EQ(report.resumed, 2);
  EXPECT_EQ(report.skipped, expected);
  EXPECT_EQ(report.to_json()["skipped"], 2);
  EXPECT_NE(report.text().find("longer than the context"), std::string::npos) << report.text();
  report = regenerate(model, prompts, options);  // all done
  EXPECT_EQ(report.answers, 0);
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(answers(options.out).size(), 4u);
  options.out = folder / "none.jsonl";
  EXPECT_THROW(regenerate(model, {prompts[1]}, options), Error);
}

TEST(Regenerate, RefusesOtherSettings) {
  const Model model = tiny_model();
  TempFolder folder;
  auto options = options_for(folder, 4);
  regenerate(model, tiny_prompts(2), options);
  options.max_new_tokens = 13;
  const std::string message =
      testing::error_of<Error>([&] { regenerate(model, tiny_prompts(2), options); });
  EXPECT_NE(message.find("max_new_tokens"), std::string::npos) << message;
}

TEST(Regenerate, CutAnswersGetNoEndToken) {
  const Model model = tiny_model();
  TempFolder folder;
  regenerate(model, tiny_prompts(6), options_for(folder, 4));
  for (const auto& [id, line] : answers(folder / "answers.jsonl")) {
    const auto ids = line["answer_ids"].get<std::vector<int64_t>>();
    const int64_t stop = model.tokenizer->stop_ids()[0];
    EXPECT_EQ(line["finish"] == "stop", ids.back() == stop) << id;
    if (line["finish"] == "length") {
      EXPECT_EQ(ids.size(), 12u) << id;
    }
  }
}

// A prompt keeps its answers wherever it stands, and a resumed run counts those asked for alone.
TEST(Regenerate, SampledAnswersDependOnThePromptAlone) {
  const Model model = tiny_model();
  TempFolder all, one;
  const auto prompts = tiny_prompts(3);
  regenerate(model, prompts, options_for(all, 4));
  auto report = regenerate(model, {prompts[2]}, options_for(one, 4));
  const auto a = answers(all / "answers.jsonl"), b = answers(one / "answers.jsonl");
  ASSERT_EQ(b.size(), 2u);
  for (const auto& [id, line] : b) EXPECT_EQ(line, a.at(id)) << id;
  report = regenerate(model, {prompts[2]}, options_for(all, 4));
  EXPECT_EQ(report.resumed, 2) << "the file has 6";
}

TEST(Regenerate, OneProcessAFile) {
  const Model model = tiny_model();
  TempFolder folder;
  const auto options = options_for(folder, 4);
  const auto lock = lock_file(options.out);
  EXPECT_THROW(regenerate(model, tiny_prompts(1), options), Error);
  EXPECT_FALSE(std::filesystem::exists(options.out));
}

// The target writes its own last turn, as in eval; what is said twice is answered once.
TEST(Prompts, LastAnswersAndRepetitionsAreLeftOut) {
  TempFolder folder;
  const std::string user = R"({"role": "user", "content": "a"})";
  testing::write_file(folder / "p.jsonl", "{\"messages\": [" + user +
                                              R"(, {"role": "assistant", "content": "b"}]})"
                                              "\n{\"prompt\": \"a\"}\n");
  const auto file = read_prompts(folder / "p.jsonl");
  ASSERT_EQ(file.prompts.size(), 1u);
  EXPECT_EQ(file.prompts[0].conversation.messages.size(), 1u);
  EXPECT_EQ(file.left_out.by_reason().at("said before in the file").count, 1);
  testing::write_file(folder / "p.jsonl",
                      "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 1, \"prompt\": \"b\"}\n");
  const auto same_ids = read_prompts(folder / "p.jsonl");
  ASSERT_EQ(same_ids.prompts.size(), 1u);
  EXPECT_EQ(same_ids.prompts[0].conversation.messages[0].content, "a");
  EXPECT_EQ(same_ids.left_out.by_reason().at("the id of an earlier record").first,
            (folder / "p.jsonl").string() + ":2: 1, line 1");
}

TEST(Prompts, ATornLastLineIsCounted) {
  TempFolder folder;
  testing::write_file(folder / "p.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}");
  EXPECT_EQ(read_prompts(folder / "p.jsonl").prompts.size(), 2u) << "only the line feed is missing";
  testing::write_file(folder / "p.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b");
  const auto file = read_prompts(folder / "p.jsonl");
  EXPECT_EQ(file.prompts.size(), 1u);
  EXPECT_EQ(file.left_out.total(), 1);
}

}  // namespace
}  // namespace dflash::jobs
