// The recipes of tokenising (RECIPES.md 1) and the faults behind them (FAULTS.md 1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/byte_alphabet.h"
#include "text/support.h"

namespace dflash::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// R-TOK-1's vocabulary without a pre-tokenizer.
Json small_model() {
  return {{"type", "BPE"},
          {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}, {"bca", 6}}},
          {"merges", {"a b", "b c", "ab c"}}};
}

Json small_tokenizer() {
  return {{"model", small_model()}, {"added_tokens", Json::array()}};
}

std::shared_ptr<const Tokenizer> load(const Json& tokenizer, const Json& config = Json::object()) {
  return TempFolder().put("tokenizer.json", tokenizer).put("tokenizer_config.json", config).load();
}

std::string load_error(const Json& tokenizer, const Json& config = Json::object()) {
  return error_of([&] { load(tokenizer, config); });
}

// R-TOK-1, TOK-01
TEST(Recipes, MergesAsStringsAndAsPairs) {
  Json pairs = small_tokenizer();
  pairs["model"]["merges"] = Json::array({{"a", "b"}, {"b", "c"}, {"ab", "c"}});
  for (const Json& file : {small_tokenizer(), pairs}) {
    const auto tokenizer = load(file);
    EXPECT_THAT(tokenizer->encode("abc"), ElementsAre(5));
    EXPECT_THAT(tokenizer->encode("bca"), ElementsAre(4, 0));
    EXPECT_THAT(tokenizer->encode("abab"), ElementsAre(3, 3));
    EXPECT_THAT(tokenizer->encode("cab"), ElementsAre(2, 3));
  }
  EXPECT_EQ(load(small_tokenizer())->fingerprint(), load(pairs)->fingerprint());
}

// R-TOK-1, TOK-03
TEST(Recipes, IgnoreMergesTakesWholePieces) {
  Json file = small_tokenizer();
  file["model"]["ignore_merges"] = true;
  const auto tokenizer = load(file);
  EXPECT_THAT(tokenizer->encode("bca"), ElementsAre(6));
  EXPECT_THAT(tokenizer->encode("abc"), ElementsAre(5));
  EXPECT_NE(tokenizer->fingerprint(), load(small_tokenizer())->fingerprint());
}

// R-TOK-1, TOK-01, TOK-02
TEST(Recipes, BadMergesAreNamed) {
  const auto error_with = [](const Json& merges) {
    Json file = small_tokenizer();
    file["model"]["merges"] = merges;
    return load_error(file);
  };
  EXPECT_THAT(error_with({"a b", "b c", "ab c", "a c"}),
              AllOf(HasSubstr("merge 3 ('a', 'c')"), HasSubstr("result 'ac'")));
  EXPECT_THAT(error_with({"a x"}), HasSubstr("right part 'x'"));
  EXPECT_THAT(error_with({"x a"}), HasSubstr("left part 'x'"));
  EXPECT_THAT(error_with({"a b", "b  c"}), HasSubstr("merge 1 ('b  c')"));
  EXPECT_THAT(error_with({"ab"}), HasSubstr("one space"));
  EXPECT_THAT(error_with(Json::array({{"a", "b", "c"}})), HasSubstr("merge 0"));
  EXPECT_THAT(error_with(Json::array()), HasSubstr("merge table is empty"));
}

// TOK-02
TEST(Recipes, SymbolWithASpaceInPairForm) {
  Json file = small_tokenizer();
  file["model"]["vocab"] = {{"a", 0}, {" ", 1}, {"a ", 2}, {"a a", 3}};
  file["model"]["merges"] = Json::array({{"a", " "}, {"a ", "a"}});
  EXPECT_THAT(load(file)->encode("a a"), ElementsAre(3));
}

// R-TOK-2
TEST(Recipes, ByteAlphabet) {
  const auto symbol = [](int byte) {
    return static_cast<uint32_t>(byte_to_symbol(static_cast<uint8_t>(byte)));
  };
  EXPECT_EQ(symbol(' '), 0x120U);
  EXPECT_EQ(symbol('\n'), 0x10AU);
  EXPECT_EQ(symbol(0x00), 0x100U);
  EXPECT_EQ(symbol(0x7F), 0x121U);
  EXPECT_EQ(symbol(0x80), 0x122U);
  EXPECT_EQ(symbol(0x9F), 0x141U);
  EXPECT_EQ(symbol(0xA0), 0x142U);
  EXPECT_EQ(symbol(0xAD), 0x143U);
  EXPECT_EQ(to_symbols("\xF0\x9F\x98\x80"), "\u00F0\u0141\u013A\u0122");
  EXPECT_EQ(to_symbols("\xE8\xAA\x9E"), "\u00E8\u00AA\u0140");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_symbols(to_symbols(all)), all);
  EXPECT_EQ(from_symbols("a b"), std::nullopt);  // a space is not a symbol
  EXPECT_EQ(from_symbols("\u0144"), std::nullopt);
}

// R-TOK-3
TEST(Recipes, DigitPatternComesFromTheFile) {
  const auto ids_with = [](const std::string& pattern) {
    Json file = small_tokenizer();
    file["model"]["vocab"] = {{"1", 0},  {"2", 1},   {"3", 2},  {"4", 3},
                              {"12", 4}, {"123", 5}, {"34", 6}, {"1234", 7}};
    file["model"]["merges"] = {"1 2", "12 3", "3 4", "123 4"};
    file["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
    return load(file)->encode("1234");
  };
  EXPECT_THAT(ids_with(R"(\p{N})"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids_with(R"(\p{N}{1,3})"), ElementsAre(5, 3));
}

Json added(int64_t id, const std::string& content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

// R-TOK-4, TOK-04, TOK-05
TEST(Recipes, AddedTokensMatchWholeWhicheverFileListsThem) {
  Json both = small_tokenizer();
  both["added_tokens"] = {added(12, "<think>", false), added(11, "<|im_end|>", true)};
  Json one = small_tokenizer();
  one["added_tokens"] = {added(12, "<think>", false)};
  const Json config = {{"added_tokens_decoder", {{"11", added(11, "<|im_end|>", true)}}}};
  for (const auto& tokenizer : {load(both), load(both, config), load(one, config)}) {
    const auto ids = tokenizer->encode("a<think>b<|im_end|>");
    EXPECT_THAT(ids, ElementsAre(0, 12, 1, 11));
    EXPECT_EQ(tokenizer->decode(ids, true), "a<think>b");
    EXPECT_EQ(tokenizer->decode(ids), "a<think>b<|im_end|>");
    EXPECT_TRUE(tokenizer->is_special(11));
    EXPECT_FALSE(tokenizer->is_special(12));
    EXPECT_EQ(tokenizer->token_to_id("<|im_end|>"), 11);
    EXPECT_EQ(tokenizer->size(), 13);
  }
}

// R-TOK-4, TOK-04
TEST(Recipes, ConflictingIdsAreErrors) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added(12, "<think>", false), added(11, "<|im_end|>", true)};
  const Json other_id = {{"added_tokens_decoder", {{"13", added(13, "<|im_end|>", true)}}}};
  EXPECT_THAT(load_error(file, other_id), HasSubstr("'<|im_end|>' has id 11"));
  const Json same_id = {{"added_tokens_decoder", {{"11", added(11, "<|end|>", true)}}}};
  EXPECT_THAT(load_error(file, same_id), HasSubstr("id 11 belongs to two tokens"));
  const Json vocab_id = {{"added_tokens_decoder", {{"9", added(9, "abc", true)}}}};
  EXPECT_THAT(load_error(file, vocab_id), HasSubstr("'abc' has two ids"));
  const Json no_id = {{"added_tokens_decoder", {{"x1", added(9, "<x>", true)}}}};
  EXPECT_THAT(load_error(file, no_id), HasSubstr("'x1' is not an id"));
}

// R-TOK-6
TEST(Recipes, RowsWithoutAStringDecodeToNothing) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added(13, "<|im_end|>", true)};
  const auto tokenizer = load(file);
  EXPECT_EQ(tokenizer->size(), 14);
  for (const int64_t id : {14LL, 15LL, 16LL, -1LL, 8LL, 1LL << 40}) {
    EXPECT_EQ(tokenizer->decode({id}), "");
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
  EXPECT_EQ(tokenizer->decode({0, 14, 1}), "ab");
}

// R-SV-1
TEST(Recipes, StreamHoldsBackIncompleteCharacters) {
  Json file = small_tokenizer();
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  file["decoder"] = {{"type", "ByteLevel"}};
  file["model"]["vocab"] = {{to_symbols("\xF0\x9F"), 0},
                            {to_symbols("\x98\x80"), 1},
                            {to_symbols("\xF0"), 2},
                            {to_symbols("\x9F"), 3},
                            {"a", 4}};
  file["model"]["merges"] = {to_symbols("\xF0") + " " + to_symbols("\x9F")};
  file["added_tokens"] = {added(5, "<|im_end|>", true)};
  const auto tokenizer = load(file);
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.push(1), "\U0001F600");
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(tokenizer->decode({0, 1}), "\U0001F600");
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.push(4), "\uFFFDa");
  EXPECT_EQ(stream.push(5), "<|im_end|>");
  StreamDecoder quiet(*tokenizer, true);
  EXPECT_EQ(quiet.push(5), "");
  EXPECT_EQ(quiet.push(4), "a");
}

// TOK-09
TEST(Recipes, NoBeginTokenIsAdded) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added(11, "<s>", true)};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}}}};
  const auto tokenizer = load(file, {{"bos_token", "<s>"}, {"pad_token", "<s>"}});
  EXPECT_EQ(tokenizer->bos_id(), 11);
  EXPECT_EQ(tokenizer->pad_id(), 11);
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(3));
  EXPECT_THAT(tokenizer->encode("<s>ab"), ElementsAre(11, 3));
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
}

}  // namespace
}  // namespace dflash::text
