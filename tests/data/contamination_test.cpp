// Held-out text: runs of 13 words, whatever the spelling of case, spaces and punctuation.
#include "data/contamination.h"

#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "support/temp_folder.h"

namespace dflash::data {
namespace {

const std::string kThirteen = "one two three four five six seven eight nine ten eleven twelve last";

TEST(Words, CaseAndPunctuationDoNotCount) {
  EXPECT_EQ(word_hashes("Has_close Elements(x)"), word_hashes("has close\n  elements, X!"));
  EXPECT_NE(word_hashes("a b"), word_hashes("b a"));
  EXPECT_NE(word_hashes("ab"), word_hashes("a b"));
  EXPECT_EQ(word_hashes("caf\xC3\xA9 x").size(), 2u);
  EXPECT_EQ(word_hashes("\xE6\x97\xA5\xE6\x9C\xAC x").size(), 3u);  // two ideographs and a word
  EXPECT_EQ(word_hashes("a\xE6").size(), 1u);                       // a torn sequence at the end
  EXPECT_TRUE(word_hashes("").empty());
}

TEST(HeldOut, ThirteenWordsInARow) {
  HeldOut held_out;
  EXPECT_FALSE(held_out.shares_run_with(kThirteen));
  held_out.add_text("before " + kThirteen + " after");
  EXPECT_TRUE(held_out.shares_run_with("Noise. " + kThirteen + " noise"));
  EXPECT_TRUE(
      held_out.shares_run_with("One, two; three four-five SIX seven eight nine ten\neleven "
                               "(twelve) last"));
  EXPECT_FALSE(held_out.shares_run_with(kThirteen.substr(4) + " one"));  // twelve of them
  EXPECT_FALSE(held_out.shares_run_with("x"));
}

TEST(HeldOut, ShortPromptsCountWhole) {
  HeldOut held_out;
  held_out.add_prompt("What is the capital of France?");
  held_out.add_prompt("Hi there");  // too common to mean anything
  EXPECT_TRUE(held_out.shares_run_with("user: what is the capital of france, please"));
  EXPECT_FALSE(held_out.shares_run_with("what is the capital of Spain"));
  EXPECT_FALSE(held_out.shares_run_with("hi there"));
  held_out.add_text("a b c d e f");  // text, not a prompt: only runs of 13 count
  EXPECT_FALSE(held_out.shares_run_with("a b c d e f"));
}

TEST(HeldOut, ReadsFiles) {
  const testing::TempFolder folder;
  write_text(folder / "a.jsonl",
             "{\"task_id\":\"T/0\",\"prompt\":\"how many legs has a spider\","
             "\"extra\":{\"deep\":[\"" +
                 kThirteen + "\"]}}\n");
  write_text(folder / "b.txt", "p q r s t u v w x y z aa bb");
  HeldOut held_out;
  held_out.add_file(folder / "a.jsonl");
  held_out.add_file(folder / "b.txt");
  EXPECT_TRUE(held_out.shares_run_with("so, how many legs has a spider"));
  EXPECT_TRUE(held_out.shares_run_with(kThirteen));
  EXPECT_TRUE(held_out.shares_run_with("P Q R S T U V W X Y Z AA BB"));
  EXPECT_NE(testing::error_text([&] { held_out.add_file(folder / "none.jsonl"); }), "");
}

}  // namespace
}  // namespace dflash::data
