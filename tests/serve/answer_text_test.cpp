// R-SV-1 and stop texts: what a client sees is whole characters and nothing of a stop text, however
// tokens were cut and grouped.
#include "serve/answer_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "serve/world.h"

namespace dflash::serve {
namespace {

using ::testing::ElementsAre;

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

/// What is to be seen after each token, and after the end.
std::vector<std::string> seen(const std::vector<int64_t>& ids, std::vector<std::string> stops) {
  const LetterTokenizer tokenizer;
  AnswerText text(tokenizer, std::move(stops));
  std::vector<std::string> out;
  for (const int64_t id : ids) {
    const bool ended = text.push(id, false);
    out.push_back(joined(text.take()));
    if (ended) break;
  }
  text.finish();
  out.push_back(joined(text.take()));
  return out;
}

std::vector<int64_t> letters(const std::string& text) {
  return LetterTokenizer().encode(text, text::Specials::kParse);
}

TEST(AnswerText, HalfCharactersWait) {  // R-SV-1
  EXPECT_THAT(seen({2, 3}, {}), ElementsAre("", "😀", ""));
  EXPECT_THAT(seen({2}, {}), ElementsAre("", "\uFFFD"));
  EXPECT_THAT(seen({2, LetterTokenizer::letter('a')}, {}), ElementsAre("", "\uFFFDa", ""));
}

TEST(AnswerText, SpecialTokensAreNotShown) {
  EXPECT_THAT(seen({LetterTokenizer::letter('a'), kEnd}, {}), ElementsAre("a", "", ""));
}

TEST(AnswerText, StopTextsSpanTokensAndAreHeldBack) {
  EXPECT_THAT(seen(letters("ab--cd"), {"-->"}), ElementsAre("a", "b", "", "", "--c", "d", ""));
  EXPECT_THAT(seen(letters("ab-->cd"), {"-->"}), ElementsAre("a", "b", "", "", "", ""));
  EXPECT_THAT(seen(letters("a--->"), {"-->"}), ElementsAre("a", "", "", "-", "", ""));
  EXPECT_THAT(seen(letters("ab--"), {"-->"}), ElementsAre("a", "b", "", "", "--"));
  EXPECT_THAT(seen({2, 3}, {"😀"}), ElementsAre("", "", ""));
}

TEST(AnswerText, TheStopTextThatIsCompleteFirstCounts) {
  EXPECT_THAT(seen(letters("abcd"), {"bcd", "c"}), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(seen(letters("abc"), {"c", "bc"}), ElementsAre("a", "", "", ""));
}

TEST(AnswerText, PiecesKnowWhatWasDrafted) {
  const LetterTokenizer tokenizer;
  AnswerText text(tokenizer, {"cx"});
  for (const char c : std::string("abcd")) text.push(LetterTokenizer::letter(c), c != 'b');
  const std::vector<Piece> pieces = text.take();
  ASSERT_EQ(pieces.size(), 4u);
  for (const Piece& piece : pieces) EXPECT_EQ(piece.drafted, piece.text != "b") << piece.text;
}

/// Beside the plain way: look for the first complete stop text in the whole text.
TEST(AnswerText, EqualsASearchInTheWholeText) {
  const std::vector<std::vector<std::string>> stop_sets = {
      {"aba"}, {"ab", "ba"}, {"bbb", "ab"}, {"abab", "b b", "aab"}, {"aaaa"}};
  for (uint64_t round = 0; round < 300; ++round) {
    std::string whole;
    for (uint64_t i = 0; i < 12; ++i) whole += "ab "[uniform_below(3, {round, i})];
    const auto& stops = stop_sets[round % stop_sets.size()];
    std::string expected = whole;
    for (size_t end = 1; end <= whole.size() && expected == whole; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (whole.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      }
      if (longest > 0) expected = whole.substr(0, end - longest);
    }
    std::string got;
    for (const std::string& piece : seen(letters(whole), stops)) got += piece;
    EXPECT_EQ(got, expected) << whole;
  }
}

}  // namespace
}  // namespace dflash::serve
