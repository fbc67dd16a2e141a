// UTF-8 repair, NFC with its map, and the translated patterns, against small known answers.
#include "text/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "text/regex.h"
#include "text/support.h"

namespace dflash::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Unicode, RepairReplacesMaximalSubparts) {
  const auto repaired = [](const std::string& bytes) { return repair_utf8(bytes).text; };
  const std::string bad = "\uFFFD";
  EXPECT_EQ(repaired("abc"), "abc");
  EXPECT_EQ(repaired("\x80"), bad);
  EXPECT_EQ(repaired("\xC3"), bad);
  EXPECT_EQ(repaired("\xE2\x82"), bad);
  EXPECT_EQ(repaired("\xE2\x82z"), bad + "z");
  EXPECT_EQ(repaired("\xF0\x9F\x98"), bad);
  EXPECT_EQ(repaired("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(repaired("\xED\xA0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(repaired("\xFF\xFE"), bad + bad);
}

TEST(Unicode, RepairKeepsPlaces) {
  const MappedText text = repair_utf8("a\xFFz\xE2\x82");
  EXPECT_EQ(text.text, "a\uFFFDz\uFFFD");
  EXPECT_THAT(text.origin, ElementsAre(0, 1, 1, 1, 2, 3, 3, 3));
}

TEST(Unicode, TruncatedTails) {
  const auto tail = [](const char* bytes) { return truncated_tail_bytes(bytes); };
  EXPECT_EQ(tail(""), 0U);
  EXPECT_EQ(tail("a"), 0U);
  EXPECT_EQ(tail("a\xC3"), 1U);
  EXPECT_EQ(tail("\xE2\x82"), 2U);
  EXPECT_EQ(tail("\xF0\x9F\x98"), 3U);
  EXPECT_EQ(tail("\xF0\x9F\x98\x80"), 0U);
  EXPECT_EQ(tail("\x80"), 0U);
  EXPECT_EQ(tail("\xE2\x28"), 0U);
  EXPECT_EQ(tail("\xF0\x80"), 0U);  // can no longer become right
  EXPECT_EQ(tail("\xFF"), 0U);
}

TEST(Unicode, NfcMapsComposedCharactersToTheirFirstByte) {
  const MappedText text = nfc("xe\u0301y");
  EXPECT_EQ(text.text, "x\u00E9y");
  EXPECT_THAT(text.origin, ElementsAre(0, 1, 1, 4));
}

TEST(Unicode, NfcInSegmentsEqualsNfcOfTheWhole) {
  for (const std::string& bytes : corpus()) {
    const std::string text = repair_utf8(bytes).text;
    utf8proc_uint8_t* raw = nullptr;
    const auto size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &raw,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ASSERT_GE(size, 0);
    const std::string whole(reinterpret_cast<const char*>(raw), static_cast<size_t>(size));
    std::free(raw);
    const MappedText segments = nfc(text);
    EXPECT_EQ(segments.text, whole);
    if (!segments.origin.empty()) {
      ASSERT_EQ(segments.origin.size(), segments.text.size());
      EXPECT_TRUE(std::is_sorted(segments.origin.begin(), segments.origin.end()));
    }
  }
}

std::vector<std::string> all_matches(const std::string& pattern, const std::string& text) {
  const Regex regex(pattern, "test");
  Regex::Scratch scratch;
  std::vector<std::string> found;
  size_t from = 0;
  while (const auto span = regex.find(text, from, scratch)) {
    found.push_back(text.substr(span->begin, span->end - span->begin));
    if (span->begin == span->end) break;
    from = span->end;
  }
  return found;
}

TEST(Regex, SpaceIsWhiteSpaceOfUnicodeAndNotU180e) {
  EXPECT_THAT(all_matches(R"(\s)", "\u180E\u00A0\u2003\u3000\u200B"),
              ElementsAre("\u00A0", "\u2003", "\u3000"));
  EXPECT_THAT(all_matches(R"(\S)", "\u180E "), ElementsAre("\u180E"));
  EXPECT_THAT(all_matches(R"([^\s])", "\u180E\u0085"), ElementsAre("\u180E"));
  EXPECT_THAT(all_matches(R"([^\S])", "\u180E\u0085"), ElementsAre("\u0085"));
}

// (?i:'s) also matches an apostrophe and U+017F
TEST(Regex, FoldsTheLongS) {
  EXPECT_THAT(all_matches("(?i:'s)", "'S'\u017F's"), ElementsAre("'S", "'\u017F", "'s"));
}

TEST(Regex, ScriptsAreScriptsProper) {
  // U+3001 is Common: in Han only by script extension, which Oniguruma does not use.
  EXPECT_THAT(all_matches(R"(\p{Han}+)", "\u4E2D\u3001\u6587"), ElementsAre("\u4E2D", "\u6587"));
}

TEST(Regex, EndlessBacktrackingEndsInAnError) {
  const Regex regex("(?:a|a)+[bc]", "evil.json");
  Regex::Scratch scratch;
  const std::string text(4000, 'a');
  EXPECT_THAT(error_of([&] { regex.find(text, 0, scratch); }), HasSubstr("evil.json"));
}

TEST(Regex, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {R"(\h)", R"(\w)", R"(\b)", R"(\v)", "[a[b]]", "[a&&b]", "a{1,3}+",
                              R"(\pL)", "\\", R"(\u12)", "(a", "[a"}) {
    EXPECT_THAT(error_of([&] { Regex(pattern, "file"); }), HasSubstr("file")) << pattern;
  }
}

}  // namespace
}  // namespace dflash::text
