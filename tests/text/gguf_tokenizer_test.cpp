// GGUF metadata: which keys are read, what each .pre means, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/support.h"
#include "text/tokenizer_spec.h"

namespace dflash::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Metadata without a file.
class FakeGguf final : public io::GgufFile {
 public:
  FakeGguf() { path_ = "fake.gguf"; }
  FakeGguf& set(const std::string& key, io::GgufScalar value) {
    values_[key] = {std::move(value)};
    is_array_[key] = false;
    return *this;
  }
  FakeGguf& set_all(const std::string& key, std::vector<io::GgufScalar> values) {
    values_[key] = std::move(values);
    is_array_[key] = true;
    return *this;
  }
};

FakeGguf small_file(const std::string& pre = "smollm") {
  FakeGguf file;
  file.set("tokenizer.ggml.model", std::string("gpt2"))
      .set("tokenizer.ggml.pre", pre)
      .set("tokenizer.ggml.eos_token_id", uint64_t{6})
      .set_all("tokenizer.ggml.tokens",
               {std::string("1"), std::string("2"), std::string("3"), std::string("12"),
                std::string("123"), std::string("<think>"), std::string("<|im_end|>"),
                std::string("[PAD7]"), std::string("[PAD8]")})
      .set_all("tokenizer.ggml.token_type",
               {int64_t{1}, int64_t{1}, int64_t{1}, int64_t{1}, int64_t{1}, int64_t{4}, int64_t{3},
                int64_t{5}, int64_t{5}})
      .set_all("tokenizer.ggml.merges", {std::string("1 2"), std::string("12 3")});
  return file;
}

std::string load_error(const FakeGguf& file) {
  return error_of([&] { Tokenizer::from_gguf(file); });
}

TEST(GgufTokenizer, PreNamesTheSplittingRule) {
  EXPECT_THAT(Tokenizer::from_gguf(small_file("smollm"))->encode("123"), ElementsAre(0, 1, 2));
  EXPECT_THAT(Tokenizer::from_gguf(small_file("qwen2"))->encode("123"), ElementsAre(0, 1, 2));
  EXPECT_THAT(Tokenizer::from_gguf(small_file("gpt-2"))->encode("1231"), ElementsAre(4, 0));
  EXPECT_THAT(Tokenizer::from_gguf(small_file("llama-bpe"))->encode("1231"), ElementsAre(4, 0));
  EXPECT_THAT(Tokenizer::from_gguf(small_file("llama-bpe"))->encode("1212"), ElementsAre(3, 0, 1));
  EXPECT_THAT(load_error(small_file("new-one")),
              AllOf(HasSubstr("'new-one'"), HasSubstr("smollm"), HasSubstr("qwen35")));
}

TEST(GgufTokenizer, TypesSayWhatATokenIs) {
  const auto tokenizer = Tokenizer::from_gguf(small_file());
  EXPECT_THAT(tokenizer->encode("1<think>2<|im_end|>"), ElementsAre(0, 5, 1, 6));
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_FALSE(tokenizer->is_special(5));
  EXPECT_EQ(tokenizer->decode({7, 8}), "");  // unused rows have no string
  EXPECT_EQ(tokenizer->size(), 7);
}

TEST(GgufTokenizer, EndsBeginAndTemplate) {
  FakeGguf file = small_file();
  EXPECT_THAT(Tokenizer::from_gguf(file)->stop_ids(), ElementsAre(6));
  EXPECT_EQ(Tokenizer::from_gguf(file)->bos_id(), std::nullopt);
  EXPECT_EQ(Tokenizer::from_gguf(file)->chat_template(), "");
  file.set("tokenizer.ggml.eot_token_id", uint64_t{5})
      .set("tokenizer.ggml.bos_token_id", uint64_t{1})
      .set("tokenizer.ggml.padding_token_id", uint64_t{2})
      .set("tokenizer.chat_template", std::string("t"));
  EXPECT_THAT(Tokenizer::from_gguf(file)->stop_ids(), ElementsAre(6, 5));
  EXPECT_EQ(Tokenizer::from_gguf(file)->bos_id(), 1);
  EXPECT_EQ(Tokenizer::from_gguf(file)->pad_id(), 2);
  EXPECT_EQ(Tokenizer::from_gguf(file)->chat_template(), "t");
}

// A drafter trained on the one form of a model may be served on the other without a warning.
TEST(GgufTokenizer, FingerprintEqualsThatOfTheFolderForm) {
  const auto added = [](int64_t id, const char* content, bool special) {
    return Json{{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
  };
  const Json file = {{"model",
                      {{"type", "BPE"},
                       {"vocab", {{"1", 0}, {"2", 1}, {"3", 2}, {"12", 3}, {"123", 4}}},
                       {"merges", {"1 2", "12 3"}}}},
                     {"added_tokens", {added(5, "<think>", false), added(6, "<|im_end|>", true)}},
                     {"pre_tokenizer",
                      {{"type", "Sequence"},
                       {"pretokenizers",
                        {{{"type", "Digits"}, {"individual_digits", true}},
                         {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}}}};
  TempFolder folder;
  folder.put("tokenizer.json", file).put("tokenizer_config.json", {{"chat_template", "t"}});
  FakeGguf gguf = small_file();
  gguf.set("tokenizer.chat_template", std::string("t"));
  EXPECT_EQ(Tokenizer::from_gguf(gguf)->fingerprint(), folder.load()->fingerprint());
}

TEST(GgufTokenizer, DamagedMetadataIsAnError) {
  EXPECT_THAT(load_error(small_file().set("tokenizer.ggml.model", std::string("llama"))),
              HasSubstr("'llama'"));
  EXPECT_THAT(load_error(small_file().set_all("tokenizer.ggml.token_type", {int64_t{1}})),
              HasSubstr("expected 9 entries, got 1"));
  EXPECT_THAT(load_error(small_file().set_all("tokenizer.ggml.merges", {})),
              HasSubstr("merge table is empty"));
  EXPECT_THAT(load_error(small_file().set_all("tokenizer.ggml.merges", {std::string("1 9")})),
              HasSubstr("right part '9'"));
  EXPECT_THAT(load_error(small_file().set_all("tokenizer.ggml.merges", {std::string("12")})),
              HasSubstr("one space"));
  EXPECT_THAT(load_error(small_file().set("tokenizer.ggml.eos_token_id", int64_t{-5})),
              HasSubstr("-5"));
}

TEST(GgufTokenizer, SmolLm2) {
  const auto tokenizer = smollm2();
  SKIP_WITHOUT_SMOLLM2(tokenizer);
  EXPECT_EQ(tokenizer->size(), 49152);
  EXPECT_THAT(tokenizer->stop_ids(), ElementsAre(2, 0));
  EXPECT_EQ(tokenizer->token_to_id("<empty_output>"), 16);
  EXPECT_TRUE(tokenizer->is_special(16));
  EXPECT_EQ(tokenizer->decode({49152, 60000, -1}), "");  // R-TOK-6
  const auto ids = tokenizer->encode("Hello <|im_end|>");
  EXPECT_EQ(tokenizer->decode(ids, true), "Hello ");
}

}  // namespace
}  // namespace dflash::text
