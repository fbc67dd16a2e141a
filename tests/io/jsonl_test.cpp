// JSON lines: what is tolerated, what is counted, what is an error, and with which line number.
#include "io/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace dflash::io {
namespace {

using dflash::testing::error_of;
using dflash::testing::TempFolder;
using dflash::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Seen {
  JsonlCounts counts;
  std::vector<std::pair<int64_t, std::string>> records, problems;
};

Seen read(const std::string& text, JsonlOptions options = {}) {
  const TempFolder folder;
  write_file(folder / "data.jsonl", text);
  Seen seen;
  options.report = [&](int64_t line, const std::string& why) {
    seen.problems.emplace_back(line, why);
  };
  seen.counts = read_jsonl(folder / "data.jsonl", options, [&](int64_t line, const Json& record) {
    seen.records.emplace_back(line, record.dump());
  });
  return seen;
}

JsonlOptions skipping() {
  return {.on_bad_line = OnBadLine::kSkip};
}

TEST(Jsonl, ToleratesMarkCrlfBlankLinesAndNoLastFeed) {
  const Seen seen = read("\xEF\xBB\xBF{\"a\":1}\r\n\r\n \t\n{\"b\":2}\n[3]");
  EXPECT_THAT(seen.records, ElementsAre(std::pair(1, "{\"a\":1}"), std::pair(4, "{\"b\":2}"),
                                        std::pair(5, "[3]")));
  EXPECT_EQ(seen.counts.lines, 5);
  EXPECT_EQ(seen.counts.records, 3);
  EXPECT_EQ(seen.counts.skipped, 0);
  EXPECT_FALSE(seen.counts.cut_off);
  EXPECT_EQ(read("").counts.lines, 0);
}

TEST(Jsonl, BadLineFailsWithFileAndNumber) {
  const std::string message = error_of<Error>([] { read("{}\n{\"a\":}\n{}\n"); });
  EXPECT_THAT(message, HasSubstr("data.jsonl:2: "));
  EXPECT_THAT(message, HasSubstr("syntax error"));
}

TEST(Jsonl, BadLinesAreCountedWhenSkipped) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const Seen seen = read("{}\nnot json\n" + deep + "\n{\"a\":\"\xff\"}\n" +
                             std::string("{}\0{}\n", 6) + "{\"k\":1,\"k\":2}\n",
                         skipping());
  EXPECT_THAT(seen.records, ElementsAre(std::pair(1, "{}"), std::pair(6, "{\"k\":2}")));
  EXPECT_EQ(seen.counts.skipped, 4);
  ASSERT_EQ(seen.problems.size(), 4U);
  EXPECT_THAT(seen.problems[1].second, HasSubstr("nested deeper"));
  EXPECT_THAT(seen.problems[3].second, HasSubstr("NUL"));
}

TEST(Jsonl, TornLastLineIsSurvivedUnderBothPolicies) {
  const std::string torn = "{\"a\":1}\n{\"text\":\"zw\xc3";
  for (const OnBadLine policy : {OnBadLine::kFail, OnBadLine::kSkip}) {
    const Seen seen = read(torn, {.on_bad_line = policy});
    EXPECT_EQ(seen.counts.records, 1);
    EXPECT_EQ(seen.counts.skipped, 0);
    EXPECT_TRUE(seen.counts.cut_off);
    EXPECT_THAT(seen.problems, IsEmpty());
  }
  EXPECT_THROW(read("{\"a\":1}\n{\"text\":\"zw\n"), Error);  // ended: not torn but broken
}

TEST(Jsonl, LongLinesAreBoundedAndTheNextOneIsRead) {
  JsonlOptions options = skipping();
  options.max_line_bytes = 10;
  // Longer than the reader's buffer, exactly the bound, one more than the bound.
  const std::string text =
      "[\"" + std::string(1 << 20, 'x') + "\"]\n[12345678]\n[123456789]\n[1]\n";
  const Seen seen = read(text, options);
  EXPECT_THAT(seen.records, ElementsAre(std::pair(2, "[12345678]"), std::pair(4, "[1]")));
  EXPECT_EQ(seen.counts.skipped, 2);
  options.on_bad_line = OnBadLine::kFail;
  EXPECT_THAT(error_of<Error>([&] { read(text, options); }), HasSubstr("longer than 10 bytes"));
}

TEST(Jsonl, LinesAcrossBufferEdgesStayWhole) {
  std::string text;
  int64_t sum = 0;
  for (int64_t i = 0; i < 60000; ++i) {
    text += "{\"i\":" + std::to_string(i) + "}\n";
    sum += i;
  }
  const TempFolder folder;
  write_file(folder / "x", text);
  int64_t got = 0;
  const auto counts =
      read_jsonl(folder / "x", {}, [&](int64_t, const Json& r) { got += r["i"].get<int64_t>(); });
  EXPECT_EQ(got, sum);
  EXPECT_EQ(counts.records, 60000);
}

TEST(Jsonl, KeysKeepTheirOrderWhereAsked) {
  const TempFolder folder;
  write_file(folder / "x", "{\"b\":1,\"a\":2}\n{\"b\":\n{\"b\":1,\"b\":{\"d\":3,\"c\":4}}\n");
  BufferedFile file(folder / "x");
  std::vector<std::string> seen;
  const auto counts =
      read_jsonl_in_order(file, skipping(), [&](int64_t line, const OrderedJson& record) {
        seen.push_back(std::to_string(line) + record.dump());
      });
  EXPECT_THAT(seen, ElementsAre(R"(1{"b":1,"a":2})", R"(3{"b":{"d":3,"c":4}})"));
  EXPECT_EQ(counts.skipped, 1);
}

TEST(Jsonl, CallbackMayRejectButOtherErrorsPass) {
  const TempFolder folder;
  write_file(folder / "x", "{}\n{\"messages\":[]}\n{}");
  const auto on_record = [](int64_t, const Json& record) {
    if (!record.contains("messages")) throw BadRecord("no \"messages\"");
  };
  const auto counts = read_jsonl(folder / "x", skipping(), on_record);
  EXPECT_EQ(counts.records, 1);
  EXPECT_EQ(counts.skipped, 2);
  EXPECT_FALSE(counts.cut_off);
  EXPECT_THAT(error_of<Error>([&] { read_jsonl(folder / "x", {}, on_record); }),
              HasSubstr("x:1: no \"messages\""));
  EXPECT_THROW(
      read_jsonl(folder / "x", skipping(), [](int64_t, const Json&) { fail("disk full"); }), Error);
  EXPECT_THROW(read_jsonl(folder / "absent", {}, on_record), Error);
  EXPECT_THROW(read_jsonl(folder.path(), {}, on_record), Error);
}

}  // namespace
}  // namespace dflash::io
