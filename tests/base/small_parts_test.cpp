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
  EXPECT_THAT(text, HasSubstr("100% 10 steps"));
  EXPECT_THAT(text, HasSubstr("loss 2.31"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("quiet")));
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
