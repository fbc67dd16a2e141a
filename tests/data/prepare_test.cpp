// Files -> dataset: masks, cuts, drops and their counts.
#include "data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "data/word_tokenizer.h"
#include "support/temp_folder.h"

namespace dflash::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Prepare : public ::testing::Test {
 protected:
  Prepared run(const std::string& lines, const PrepareOptions& options = {}) {
    write_text(folder_ / "in.jsonl", lines);
    return prepare({folder_ / "in.jsonl"}, tokenizer_, &chat_, options);
  }
  std::string error(const std::string& lines, const PrepareOptions& options = {}) {
    return testing::error_text([&] { run(lines, options); });
  }
  text::Encoded encode(const std::string& user, const std::string& assistant) {
    Row row;
    row.conversation.messages = {{"user", user}, {"assistant", assistant}};
    return encode_row(row, tokenizer_, &chat_).at(0);
  }
  static std::string chat_line(const std::string& user, const std::string& assistant) {
    return Json{{"prompt", user}, {"response", assistant}}.dump() + "\n";
  }
  static int64_t count(const Prepared& prepared, const std::string& reason) {
    const auto found = prepared.report.drops().find(reason);
    return found == prepared.report.drops().end() ? 0 : found->second.count;
  }

  testing::TempFolder folder_;
  WordTokenizer tokenizer_;
  text::ChatTemplate chat_ = text::ChatTemplate::for_tokenizer(tokenizer_);
};

TEST_F(Prepare, EmptyAnswerTrainsNothing) {  // R-PREP-1
  const text::Encoded row = encode("hi", "");
  EXPECT_THAT(row.loss_mask, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0));
  EXPECT_EQ(row.ids[9], 1);  // E
  const Prepared out = run(chat_line("hi", "") + chat_line("hi", "ok"));
  EXPECT_EQ(out.dataset.num_documents(), 1);
  EXPECT_EQ(count(out, "too few supervised tokens"), 1);
}

TEST_F(Prepare, OneWordAnswerTrainsItsEnd) {  // R-PREP-2
  const Prepared out = run(chat_line("hi", "ok"));
  const auto mask = out.dataset.document_mask(0);
  EXPECT_THAT(std::vector<int>(mask.begin(), mask.end()),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0));
  EXPECT_EQ(out.dataset.document_ids(0)[10], 1);
}

TEST_F(Prepare, CutsIdsAndMaskAlike) {  // R-PREP-3
  text::Encoded ten = encode("hi", ""), nine = ten;
  EXPECT_TRUE(truncate(ten, 10));
  EXPECT_EQ(ten.ids.size(), 10u);
  EXPECT_EQ(ten.loss_mask.size(), 10u);
  EXPECT_EQ(longest_supervised_run(ten.loss_mask), 1);
  EXPECT_TRUE(truncate(nine, 9));
  EXPECT_EQ(longest_supervised_run(nine.loss_mask), 0);
  EXPECT_FALSE(truncate(nine, 9));

  PrepareOptions options;
  options.max_tokens = 11;
  const Prepared out = run(chat_line("hi", "ok") + chat_line("hi", "a b c d"), options);
  EXPECT_EQ(out.report.truncated, 2);
  EXPECT_EQ(out.dataset.document_ids(1).size(), 11u);
  options.max_tokens = 9;
  EXPECT_THAT(error(chat_line("hi", "ok"), options), HasSubstr("too few supervised tokens"));
}

TEST_F(Prepare, ExactIdsAreKept) {  // PREP-26: no end token is invented for a cut answer
  const Prepared out = run(R"({"id":"a#0","prompt_ids":[7,8,9],"answer_ids":[4,5,1]})"
                           "\n"
                           R"({"id":"b#0","prompt_ids":[7,8,9],"answer_ids":[4,5]})"
                           "\n"
                           R"({"id":"c#0","prompt_ids":[7],"answer_ids":[4,100000]})"
                           "\n");
  EXPECT_THAT(out.dataset.ids, ElementsAre(7, 8, 9, 4, 5, 1, 7, 8, 9, 4, 5));
  EXPECT_THAT(out.dataset.loss_mask, ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1));
  EXPECT_EQ(out.report.answers_cut, 1);
  EXPECT_EQ(count(out, "id outside the vocabulary"), 1);
  const Prepared again = run(R"({"id":"b#0","prompt_ids":[7,8,9],"answer_ids":[4,5]})"
                             "\n");
  EXPECT_EQ(again.dataset.keys[0], out.dataset.keys[1]);  // PREP-22: stable
}

TEST_F(Prepare, AnswersOfAnotherTokenizerAreRefused) {
  write_json(folder_ / "in.jsonl.json",
             {{"format", "dflash-answers"}, {"tokenizer_fingerprint", "other"}});
  const std::string line = R"({"prompt_ids":[7],"answer_ids":[4,5]})"
                           "\n";
  EXPECT_THAT(error(line), HasSubstr("another tokenizer"));
  write_json(folder_ / "in.jsonl.json", {{"format", "dflash-answers"},
                                         {"tokenizer_fingerprint", "words"},
                                         {"target_fingerprint", "t1"}});
  EXPECT_EQ(run(line).dataset.info["answers_of"], Json({"t1"}));
}

// One array over many lines, as ShareGPT is published, cut off in its third record.
TEST_F(Prepare, ATornArrayGivesItsWholeRecords) {
  const auto record = [](const char* id, const char* answer) {
    return Json{{"id", id},
                {"conversations",
                 {{{"from", "human"}, {"value", "x [y] z"}}, {{"from", "gpt"}, {"value", answer}}}}}
        .dump(2);
  };
  const std::string whole =
      "[\n" + record("a", "x y") + ",\n" + record("b", "no \"end\" }") + ",\n[1],\n";
  write_text(folder_ / "in.json", whole + record("c", "x y z").substr(0, 40));
  const Prepared out = prepare({folder_ / "in.json"}, tokenizer_, &chat_, {});
  EXPECT_EQ(out.dataset.num_documents(), 2);
  EXPECT_EQ(count(out, "not a JSON object"), 1);
  EXPECT_EQ(out.report.rows, 4);
  EXPECT_EQ(out.report.drops().at("cut off at the end of the file").first,
            fmt::format("{}: the file ends inside record 4 at byte {}: 3 records read",
                        (folder_ / "in.json").string(), whole.size() + 40));
  EXPECT_EQ(run(chat_line("x [y] z", "x y")).dataset.ids,
            prepare({folder_ / "in.json"}, tokenizer_, &chat_, {.max_documents = 1}).dataset.ids);
}

TEST_F(Prepare, DamagedFilesAreCounted) {  // PREP-01
  const Prepared out = run(chat_line("a", "x y") + "{broken\n\n" + "[1]\n" + chat_line("b", "x y") +
                           R"({"prompt":"torn","respon)");
  EXPECT_EQ(out.dataset.num_documents(), 2);
  EXPECT_EQ(count(out, "broken line"), 1);
  EXPECT_EQ(count(out, "not a JSON object"), 1);
  EXPECT_EQ(count(out, "cut off at the end of the file"), 1);
  EXPECT_EQ(out.report.rows, 5);
  EXPECT_EQ(out.report.documents + out.report.dropped(), out.report.rows);
  EXPECT_THAT(out.report.text(), HasSubstr("in.jsonl:2"));
  EXPECT_EQ(out.report.to_json()["drops"]["broken line"]["count"], 1);
  EXPECT_NE(testing::error_text([&] { prepare({folder_ / "none.jsonl"}, tokenizer_, &chat_, {}); }),
            "");
}

TEST_F(Prepare, DropsLoopsDuplicatesAndHeldOut) {
  std::string loop;
  for (int i = 0; i < 30; ++i) loop += "elif ";
  write_text(folder_ / "held.jsonl", R"({"prompt":"name the three largest moons"})"
                                     "\n");
  PrepareOptions options;
  options.held_out = {folder_ / "held.jsonl"};
  const std::string lines = chat_line("a", "x y") + chat_line("b", loop) + chat_line("a", "x y") +
                            chat_line("please Name the three largest moons.", "Io Ganymede");
  const Prepared out = run(lines, options);
  EXPECT_EQ(out.dataset.num_documents(), 1);
  EXPECT_EQ(count(out, "looping answer"), 1);
  EXPECT_EQ(count(out, "duplicate"), 1);
  EXPECT_EQ(count(out, "shares text with held-out files"), 1);

  options = {};
  options.drop_loops = options.drop_duplicates = false;
  EXPECT_EQ(run(lines, options).dataset.num_documents(), 4);
}

TEST_F(Prepare, PlainTextOnlyWhenAskedFor) {  // PREP-27
  const std::string lines = R"({"text":"a b c d e"})"
                            "\n";
  EXPECT_THAT(error(lines), HasSubstr("plain text, not asked for"));
  PrepareOptions options;
  options.plain_text = true;
  options.max_tokens = 3;
  const Prepared out = run(lines, options);
  EXPECT_EQ(out.dataset.num_documents(), 2);  // it goes on as a new document
  EXPECT_EQ(out.dataset.num_supervised(), 5);
  EXPECT_TRUE(out.report.warnings.empty());
  EXPECT_EQ(out.report.rows, 1);
  EXPECT_EQ(out.report.pieces, 1);
  // Exact ids without a prompt: everything supervised, and nobody said that this is plain text.
  const Prepared odd = run(R"({"prompt_ids":[],"answer_ids":[4,5]})"
                           "\n");
  EXPECT_EQ(odd.report.warnings.size(), 1u);
}

TEST_F(Prepare, PlainTextFilesAddUp) {                // whatever is read is kept or dropped
  write_text(folder_ / "long.txt", "a b c d e f g");  // 3, 3 and 1: the last is short
  write_text(folder_ / "empty.txt", "");
  write_text(folder_ / "same.txt", "a b c d e");  // its first piece was met, its second is short
  PrepareOptions options;
  options.plain_text = true;
  options.max_tokens = 3;
  const std::vector<fs::path> files = {folder_ / "long.txt", folder_ / "empty.txt",
                                       folder_ / "same.txt"};
  const PrepareReport report = prepare(files, tokenizer_, nullptr, options).report;
  EXPECT_EQ(report.rows, 3);
  EXPECT_EQ(report.pieces, 3);
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.documents + report.dropped(), report.rows + report.pieces);
  EXPECT_EQ(report.drops().at("empty text").count, 1);
  EXPECT_EQ(report.drops().at("duplicate").count, 1);
  EXPECT_EQ(report.drops().at("too few supervised tokens").count, 1);
  EXPECT_THAT(report.text(), HasSubstr("long plain text was cut"));
  options.max_documents = 1;
  const PrepareReport full = prepare(files, tokenizer_, nullptr, options).report;
  EXPECT_EQ(full.documents + full.dropped(), full.rows + full.pieces);
}

TEST_F(Prepare, RowsWithoutAnAnswerOrTemplate) {
  const Prepared out = run(chat_line("a", "x y") + R"({"prompt":"no answer"})"
                                                   "\n");
  EXPECT_EQ(count(out, "prompt without an answer"), 1);
  write_text(folder_ / "in.jsonl", chat_line("a", "x y"));
  EXPECT_THAT(
      testing::error_text([&] { prepare({folder_ / "in.jsonl"}, tokenizer_, nullptr, {}); }),
      HasSubstr("needs a chat template"));
}

TEST_F(Prepare, OtherFilesAreRefused) {
  write_text(folder_ / "README.md", "# words");
  EXPECT_NE(testing::error_text([&] {
              prepare({folder_ / "README.md"}, tokenizer_, &chat_, {});
            }).find(".jsonl, .json or .txt"),
            std::string::npos);
}

TEST_F(Prepare, ShuffleThenCapMixesSources) {  // R-PREP-8
  std::string a, b;
  for (int i = 0; i < 5; ++i) {
    a += chat_line(fmt::format("q{}", i), "from a");
    b += chat_line(fmt::format("q{}", i), "from b");
  }
  write_text(folder_ / "a.jsonl", a);
  write_text(folder_ / "b.jsonl", b);
  const int64_t word_a = tokenizer_.id_of("a");
  int all_from_a = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    PrepareOptions options;
    options.shuffle = true;
    options.seed = seed;
    options.max_documents = 4;
    const Prepared out =
        prepare({folder_ / "a.jsonl", folder_ / "b.jsonl"}, tokenizer_, &chat_, options);
    ASSERT_EQ(out.dataset.num_documents(), 4);
    ASSERT_EQ(count(out, "over the limit of documents"), 6);
    int from_a = 0;
    for (int64_t id : out.dataset.ids) from_a += id == word_a ? 1 : 0;
    all_from_a += from_a == 4 ? 1 : 0;
  }
  EXPECT_LE(all_from_a, 6);
  PrepareOptions first;  // without a shuffle the first come
  first.max_documents = 4;
  EXPECT_EQ(
      prepare({folder_ / "a.jsonl", folder_ / "b.jsonl"}, tokenizer_, &chat_, first).report.rows,
      4);
}

TEST_F(Prepare, DatasetSaysHowItWasMade) {
  const Prepared out = run(chat_line("a", "x y"));
  save_dataset(folder_ / "set", out.dataset);
  const Dataset loaded = load_dataset(folder_ / "set");
  EXPECT_EQ(loaded.info["tokenizer_fingerprint"], "words");
  EXPECT_EQ(loaded.info["template"], "chatml");
  EXPECT_EQ(loaded.info["vocab_size"], 100000);
  EXPECT_EQ(loaded.info["report"]["documents"], 1);
}

}  // namespace
}  // namespace dflash::data
