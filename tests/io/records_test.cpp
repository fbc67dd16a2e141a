// Files of records: JSON lines or one array. The array is torn, damaged and hostile in every way
// that a file from a stranger may be; what is whole is read, the rest is counted or refused.
#include "io/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/memory_file.h"
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
  RecordCounts counts;
  std::vector<std::string> records, problems;
};

Seen read_path(const std::filesystem::path& path, RecordOptions options) {
  Seen seen;
  options.report = [&](const RecordPlace& place, const std::string& why) {
    seen.problems.push_back(place.in_file() + ": " + why);
  };
  seen.counts = read_records(path, options, [&](const RecordPlace&, const OrderedJson& record) {
    seen.records.push_back(record.dump());
  });
  return seen;
}

Seen read(const std::string& text, OnBadLine policy = OnBadLine::kSkip,
          const std::string& name = "data.json") {
  const TempFolder folder;
  write_file(folder / name, text);
  return read_path(folder / name, {.on_bad = policy});
}

// Two turns each, brackets, quotes and escapes in strings, over several lines.
const std::string kPretty = R"([
  {
    "id": "a]},{",
    "conversations": [
      { "from": "human", "value": "say \"}]\" and \\" },
      { "from": "gpt", "value": "[{\u00e9\n\"id\":" }
    ]
  },
  { "id": "b", "n": [1, -2.5e3, true, null, [[]], {}] },
  { "id": "c" }
]
)";

TEST(Records, ArrayOfPrettyPrintedRecords) {
  const Seen seen = read(kPretty, OnBadLine::kFail);
  EXPECT_THAT(
      seen.records,
      ElementsAre(R"({"id":"a]},{","conversations":[{"from":"human","value":"say \"}]\" and \\"},)"
                  R"({"from":"gpt","value":"[{é\n\"id\":"}]})",
                  R"({"id":"b","n":[1,-2500.0,true,null,[[]],{}]})", R"({"id":"c"})"));
  EXPECT_TRUE(seen.counts.is_array);
  EXPECT_EQ(seen.counts.seen, 3);
  EXPECT_EQ(seen.counts.records, 3);
  EXPECT_EQ(seen.counts.cut_off, "");
}

TEST(Records, LinesAreStillLines) {
  const std::string lines = "{\"id\":\"a\"}\n{\"id\":\n{\"id\":\"b\"}\n{\"id";
  for (const char* name : {"data.jsonl", "data.json"}) {
    const Seen seen = read(lines, OnBadLine::kSkip, name);
    EXPECT_THAT(seen.records, ElementsAre(R"({"id":"a"})", R"({"id":"b"})"));
    ASSERT_EQ(seen.problems.size(), 1U);
    EXPECT_THAT(seen.problems[0], HasSubstr("line 2: "));
    EXPECT_EQ(seen.counts.cut_off, "the last line (4) is cut off");
    EXPECT_FALSE(seen.counts.is_array);
  }
  EXPECT_FALSE(read("[1]\n[2]\n", OnBadLine::kFail, "data.jsonl").counts.is_array);
}

TEST(Records, MarkBlanksAndEmptyArrays) {
  EXPECT_THAT(read("\xEF\xBB\xBF \r\n[ {} ,\t{}]  \n", OnBadLine::kFail).records,
              ElementsAre("{}", "{}"));
  for (const char* empty : {"[]", " [ \n ] \n"}) {
    const Seen seen = read(empty, OnBadLine::kFail);
    EXPECT_TRUE(seen.counts.is_array);
    EXPECT_EQ(seen.counts.seen, 0);
    EXPECT_EQ(seen.counts.cut_off, "");
  }
  EXPECT_EQ(read("", OnBadLine::kFail).counts.seen, 0);
}

TEST(Records, OneObjectIsNoFileOfRecords) {
  const std::string message =
      error_of<Error>([] { read("{\n  \"version\": 1,\n  \"data\": [\n{}\n]\n}\n"); });
  EXPECT_THAT(message, HasSubstr("expected an array of records"));
  EXPECT_THAT(message, HasSubstr("hint: "));
}

// Wherever the end is missing: every whole record is read, and the counts say where it stops.
TEST(Records, TornAtEveryByte) {
  std::vector<size_t> ends;  // of the records
  for (const char* last : {"]\n  },", "{}] },", "\"c\" }"}) {
    const std::string text = last;
    ends.push_back(kPretty.find(text) + text.find_last_of('}') + 1);
  }
  ASSERT_LT(ends[0], ends[1]);
  ASSERT_LT(ends[1], ends[2]);
  const size_t array_end = kPretty.rfind(']') + 1;
  for (size_t size = 1; size < kPretty.size(); ++size) {
    const Seen seen = read(kPretty.substr(0, size));
    const auto whole = static_cast<int64_t>(
        std::count_if(ends.begin(), ends.end(), [&](size_t end) { return end <= size; }));
    ASSERT_EQ(seen.counts.records, whole) << size;
    ASSERT_EQ(seen.counts.skipped, 0) << size << ": " << seen.problems[0];
    if (size >= array_end) {
      ASSERT_EQ(seen.counts.cut_off, "") << size;
      continue;
    }
    ASSERT_THAT(seen.counts.cut_off, HasSubstr(fmt::format("at byte {}", size)));
    ASSERT_THAT(seen.counts.cut_off, HasSubstr(fmt::format(": {} records read", whole)));
  }
  EXPECT_EQ(read(kPretty.substr(0, ends[1] - 1)).counts.cut_off,
            fmt::format("the file ends inside record 2 at byte {}: 1 records read", ends[1] - 1));
}

TEST(Records, ATornEndIsSurvivedUnderBothPolicies) {
  EXPECT_EQ(read(R"([{"id":1},{"id":2)", OnBadLine::kFail).counts.records, 1);
  EXPECT_EQ(read("[1, 23", OnBadLine::kFail).counts.records, 1);  // perhaps 234
}

TEST(Records, DamageThatKeepsTheEndCostsOneRecord) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  const Seen seen = read("[{\"id\":1}, {\"id\":tru}, {\"id\":\"\xff\"}, {\"id\":" + deep +
                         "}, {\"id\" 5}, {\"id\":6}]");
  EXPECT_THAT(seen.records, ElementsAre(R"({"id":1})", R"({"id":6})"));
  ASSERT_EQ(seen.counts.skipped, 4);
  EXPECT_THAT(seen.problems[2], HasSubstr("record 4: nested deeper"));
  EXPECT_EQ(seen.counts.seen, 6);
  EXPECT_THAT(error_of<Error>([] { read("[{\"id\":1},{\"id\":}]", OnBadLine::kFail); }),
              HasSubstr("data.json: record 2: "));
}

// A quote, bracket or comma too many or too few: the next record's first key shows where it starts.
TEST(Records, ReadingGoesOnAtTheNextOpeningKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"id": 2, "text": "no end}, )", "byte 0x0a in a string"},
      {R"({"id": 2, "text": no start"},)", "outside a string"},
      {"{\"id\": 2, \"text\": \"two\nlines\"},", "byte 0x0a in a string"},
      {R"({"id": 2, "list": [1, {"a": 2}},)", "'[' closed by '}'"},
      {R"({"id": 2}},)", "expected ',' or ']' before it, got '}'"},
      {R"(@{"id": 2},)", "expected a value, got '@'"},
  };
  for (const auto& [damaged, why] : cases) {
    const Seen seen =
        read(R"([ {"id": 1, "x": [{"y": 1}]}, )" + damaged + " \n {\"id\" : 3}, {\"id\":4} ]");
    ASSERT_FALSE(seen.records.empty());
    EXPECT_EQ(seen.records.back(), R"({"id":4})") << damaged;
    EXPECT_EQ(seen.records[seen.records.size() - 2], R"({"id":3})") << damaged;
    ASSERT_EQ(seen.problems.size(), 1U) << damaged;
    EXPECT_THAT(seen.problems[0], HasSubstr(why));
    EXPECT_EQ(seen.counts.cut_off, "");
  }
}

TEST(Records, WhatCannotBeToldSafelyIsAnError) {
  const std::string broken = R"(, {"id": 2, "t": "x}, {"id": 3}, {"id": 4}])";
  const char* heads[] = {
      R"([{"id": "only one, and it is torn}, {"id": 1})",  // nothing learnt yet
      R"([{"id": 1, "turns": [{"id": 5}]})",               // the key opens an object inside, too
      R"([{"id": 1}, {"other": 1})",                       // records begin with different keys
      R"([{"id": 1}, {})",
      R"([{"id": 1}, [])",
      R"([{"a,{": 1})",
  };
  for (const char* head : heads) {
    for (const OnBadLine policy : {OnBadLine::kFail, OnBadLine::kSkip}) {
      EXPECT_THAT(error_of<Error>([&] { read(head + broken, policy); }),
                  HasSubstr("cannot be told safely"))
          << head;
    }
  }
}

TEST(Records, DamageUpToTheEnd) {
  const Seen seen = read(R"([{"id":1},{"id":2,"t":"x", @ and so on)");
  EXPECT_THAT(seen.records, ElementsAre(R"({"id":1})"));
  ASSERT_EQ(seen.problems.size(), 1U);
  EXPECT_THAT(seen.problems[0], HasSubstr("no record is found after it"));
}

TEST(Records, TrailingTextIsCounted) {
  for (const char* tail : {"]", "x", ", {}]", "[{}]"}) {
    const Seen seen = read("[{\"id\":1}]\n" + std::string(tail));
    EXPECT_THAT(seen.records, ElementsAre(R"({"id":1})"));
    EXPECT_THAT(seen.problems, ElementsAre(HasSubstr("text after the array's end at byte 12")));
    EXPECT_THROW(read("[{\"id\":1}]" + std::string(tail), OnBadLine::kFail), Error);
  }
  EXPECT_THAT(read("[{\"id\":1},]").problems, ElementsAre(HasSubstr("record 2: damaged")));
}

// The depth is bounded before the parser sees it, and so is a record's size.
TEST(Records, HostileDepthAndSize) {
  const Seen torn = read("[{\"id\":1}," + std::string(1 << 17, '['));
  EXPECT_THAT(torn.problems, ElementsAre(HasSubstr("nested deeper than")));
  const TempFolder folder;
  write_file(folder / "data.json",
             R"([{"id":1},{"id":")" + std::string(600000, 'x') + R"("},{"id":3}])");
  const Seen large =
      read_path(folder / "data.json", {.on_bad = OnBadLine::kSkip, .max_bytes = 1000});
  EXPECT_THAT(large.records, ElementsAre(R"({"id":1})", R"({"id":3})"));
  EXPECT_THAT(large.problems, ElementsAre("record 2: longer than 1000 bytes"));
}

// Records and damage that lie across the reader's window of 256 KB.
TEST(Records, AcrossWindows) {
  std::string text = "[";
  for (int i = 0; i < 40000; ++i) text += fmt::format("{{\"id\": {}, \"t\": \"[\\\"\"}},\n", i);
  text += "{\"id\": 0, \"t\": \"" + std::string(300000, 'x') + "},\n{\"id\": 7}]";
  const Seen seen = read(text);
  EXPECT_EQ(seen.counts.records, 40001);
  EXPECT_EQ(seen.records.back(), R"({"id":7})");
  EXPECT_THAT(seen.problems, ElementsAre(HasSubstr("record 40001: damaged at byte")));
}

}  // namespace
}  // namespace dflash::io
