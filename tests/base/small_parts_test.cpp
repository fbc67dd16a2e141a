// The small parts of base: durations, suggestions, strict JSON, stop flag, assertions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>

#include "base/error.h"
#include "base/json_strict.h"
#include "base/progress.h"
#include "base/stop.h"
#include "base/suggest.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Progress, FormatDuration) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(12.4), "12 s");
  EXPECT_EQ(format_duration(59.5), "1 min 00 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(3599.6), "1 h 00 min");
  EXPECT_EQ(format_duration(3720), "1 h 02 min");
  EXPECT_EQ(format_duration(90000), "25 h 00 min");
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(Progress, SilentWhenDisabledAndALineAtTheEndOtherwise) {
  ::testing::internal::CaptureStderr();
  Progress::set_enabled(false);
  Progress("quiet", "steps", 10).finish();
  Progress::set_enabled(true);
  Progress loud("train", "steps", 10, 4);
  loud.update(10);
  loud.finish("loss 2.31");
  Progress::set_enabled(false);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("100% 10/10 steps"));
  EXPECT_THAT(text, HasSubstr("loss 2.31"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("quiet")));
}

TEST(Progress, SlowRatesAndSingularsAreWords) {
  EXPECT_EQ(format_rate(812.4), "812/s");
  EXPECT_EQ(format_rate(3.42), "3.4/s");
  EXPECT_EQ(format_rate(0.4), "2.5 s each");
  EXPECT_EQ(format_rate(0.005), "3 min 20 s each");
  EXPECT_EQ(counted(1, "answers"), "1 answer");
  EXPECT_EQ(counted(0, "answers"), "0 answers");
  ProgressView view = {
      .label = "capture", .unit = "documents", .done = 1, .total = 8, .seconds = 4};
  EXPECT_THAT(progress_line(view, 0), HasSubstr(" 12% 1/8 documents, 4.0 s each, 28 s left"));
  view.done = 8;
  EXPECT_THAT(progress_line(view, 0), ::testing::Not(HasSubstr("left")));
  view.total = 0;
  EXPECT_THAT(progress_line(view, 0), HasSubstr("capture      8 documents, 2.0/s"));
}

TEST(Progress, NeverLongerThanTheTerminal) {
  const ProgressView view = {.label = "regenerate",
                             .unit = "answers",
                             .done = 30,
                             .total = 60,
                             .seconds = 60,
                             .note = "2 skipped"};
  for (int64_t columns = 1; columns < 120; ++columns) {
    EXPECT_LE(static_cast<int64_t>(progress_line(view, columns).size()), columns);
  }
  EXPECT_EQ(progress_line(view, 60), "regenerate 50% 30/60 answers, 2.0 s each, 1 min 00 s left");
  EXPECT_THAT(progress_line(view, 110), HasSubstr("[############............]"));
  EXPECT_EQ(progress_line({.label = "h\xc3\xa9", .unit = "s", .done = 1}, 2), "h");
}

TEST(Suggest, OnlyWhatIsNear) {
  EXPECT_EQ(did_you_mean("trian", {"chat", "train"}), "; did you mean train?");
  EXPECT_EQ(did_you_mean("", {"a"}), "");
  EXPECT_EQ(did_you_mean("humanevl", {"heldout", "humaneval"}), "; did you mean humaneval?");
  EXPECT_EQ(did_you_mean("fly", {"chat", "train"}), "");
}

TEST(Suggest, EditDistanceAndOrder) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
  EXPECT_THAT(closest_names("trian", {"chat", "train", "eval", "trial"}, 2),
              ElementsAre("trial", "train"));
  EXPECT_THAT(closest_names("x", {}), IsEmpty());
}

TEST(JsonStrict, RefusesWhatThePlainParserLetsPass) {
  EXPECT_EQ(parse_json_strictly(R"({"a":[1,{"b":2}],"c":{"b":3}})")["c"]["b"], 3);
  EXPECT_EQ(error_of<Error>([] { parse_json_strictly(R"({"a":1,"a":2})"); }),
            "duplicate key \"a\"");
  EXPECT_EQ(error_of<Error>([] { parse_json_strictly(R"([{"x":{"a":1,"b":2,"a":2}}])"); }),
            "duplicate key \"a\"");
  EXPECT_EQ(error_of<Error>([] { parse_json_strictly(R"({"a":1,"\u0061":2})"); }),
            "duplicate key \"a\"");
  EXPECT_EQ(parse_json_strictly(R"({"a":1,"a":2})", {.unique_keys = false})["a"], 2);
  EXPECT_THAT(error_of<Error>([] { parse_json_strictly(std::string("1\0 2", 4)); }),
              HasSubstr("NUL"));
  EXPECT_THAT(error_of<Error>([] { parse_json_strictly("{} x"); }), HasSubstr("syntax error"));
  EXPECT_THROW(parse_json_strictly(""), Error);
  EXPECT_THROW(parse_json_strictly("1e999"), Error);
}

TEST(JsonStrict, DepthAndKeysAreBounded) {
  EXPECT_NO_THROW(parse_json_strictly("[[{}]]", {.max_depth = 3}));
  EXPECT_THROW(parse_json_strictly("[[{}]]", {.max_depth = 2}), Error);
  EXPECT_THROW(parse_json_strictly("[[{}", {.max_depth = 2}), Error);
  EXPECT_THROW(parse_json_strictly(std::string(1 << 20, '[')), Error);
  EXPECT_NO_THROW(parse_json_strictly(R"({"a":{"b":1}})", {.max_keys = 2}));
  EXPECT_THROW(parse_json_strictly(R"({"a":{"b":1}})", {.max_keys = 1}), Error);
}

TEST(JsonStrict, KeepsTheOrderOfKeysWhereAsked) {
  const auto text = R"({"b":{"z":1,"a":2},"a":3,"b":[]})";
  EXPECT_EQ(parse_ordered_json_strictly(R"({"b":{"z":1,"a":2},"a":3})").dump(),
            R"({"b":{"z":1,"a":2},"a":3})");
  EXPECT_EQ(parse_ordered_json_strictly(text, {.unique_keys = false}).dump(), R"({"b":[],"a":3})");
  EXPECT_THROW(parse_ordered_json_strictly(text), Error);
  const JsonLimits one = {.max_ordered_keys = 1};
  EXPECT_NO_THROW(parse_ordered_json_strictly(R"({"a":{"b":1}})", one));
  EXPECT_NO_THROW(parse_json_strictly(R"({"a":1,"b":2})", one));
  EXPECT_THAT(error_of<Error>([&] { parse_ordered_json_strictly(R"({"a":1,"b":2})", one); }),
              HasSubstr("more than 1 keys in one object"));
}

TEST(Stop, FlagAndExitCodes) {
  set_stop_signal(0);
  EXPECT_FALSE(stop_requested());
  EXPECT_EQ(stop_exit_code(), 0);
  install_stop_handlers();
  std::raise(SIGTERM);
  EXPECT_TRUE(stop_requested());
  EXPECT_EQ(stop_exit_code(), 143);
  set_stop_signal(0);
  std::raise(SIGINT);
  EXPECT_EQ(stop_exit_code(), 130);
  set_stop_signal(0);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

TEST(Stop, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        install_stop_handlers();
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
}

TEST(Errors, FailFormatsAndAssertIsNoUserError) {
  EXPECT_EQ(error_of<Error>([] { fail("file {}: expected {}, got {}", "x", 1, 2); }),
            "file x: expected 1, got 2");
  const auto broken = [] { DF_ASSERT(1 + 1 == 3, "sum={}", 2); };
  const std::string message = error_of<std::logic_error>(broken);
  EXPECT_THAT(message, HasSubstr("1 + 1 == 3"));
  EXPECT_THAT(message, HasSubstr("sum=2"));
}

}  // namespace
}  // namespace dflash
