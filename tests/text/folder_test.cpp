// Hugging Face folders: which file says what, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/rng.h"
#include "text/support.h"

namespace dflash::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json base_tokenizer() {
  const auto token = [](int64_t id, const char* content) {
    return Json{{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
  };
  return {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
      {"added_tokens",
       {token(3, "<|im_end|>"), token(4, "<|endoftext|>"), token(5, "<s>"), token(6, "</s>")}}};
}

// TOK-08
TEST(Folder, StopIdsComeFromEveryFile) {
  TempFolder folder;
  folder.put("tokenizer.json", base_tokenizer());
  EXPECT_THAT(folder.load()->stop_ids(), ElementsAre(3, 4));
  EXPECT_EQ(folder.load()->bos_id(), std::nullopt);
  folder.put("tokenizer_config.json",
             {{"eos_token", {{"content", "</s>"}}}, {"bos_token", nullptr}});
  EXPECT_THAT(folder.load()->stop_ids(), ElementsAre(6, 3, 4));
  folder.put("generation_config.json", {{"eos_token_id", {5, 6}}});
  EXPECT_THAT(folder.load()->stop_ids(), ElementsAre(6, 5, 3, 4));
  folder.put("config.json", {{"text_config", {{"eos_token_id", 2}}}});
  EXPECT_THAT(folder.load()->stop_ids(), ElementsAre(6, 5, 2, 3, 4));
}

TEST(Folder, TemplateIsAStringAListOrAFile) {
  TempFolder folder;
  folder.put("tokenizer.json", base_tokenizer());
  EXPECT_EQ(folder.load()->chat_template(), "");
  folder.put("tokenizer_config.json", {{"chat_template", "one"}});
  EXPECT_EQ(folder.load()->chat_template(), "one");
  folder.put("tokenizer_config.json", {{"chat_template",
                                        {{{"name", "tool_use"}, {"template", "tools"}},
                                         {{"name", "default"}, {"template", "two"}}}}});
  EXPECT_EQ(folder.load()->chat_template(), "two");
  folder.put("tokenizer_config.json",
             {{"chat_template", Json::array({{{"name", "x"}, {"template", "y"}}})}});
  EXPECT_THAT(error_of([&] { folder.load(); }), HasSubstr("'default'"));
  write_text(folder.path() / "chat_template.jinja", "three\n");
  EXPECT_EQ(folder.load()->chat_template(), "three\n");
}

TEST(Folder, TokensTheConfigCallsSpecialAreSpecial) {
  TempFolder folder;
  folder.put("tokenizer.json", base_tokenizer());
  EXPECT_FALSE(folder.load()->is_special(2));
  folder.put("tokenizer_config.json", {{"additional_special_tokens", {"ab"}}});
  EXPECT_TRUE(folder.load()->is_special(2));
}

TEST(Folder, FingerprintFollowsEveryPart) {
  TempFolder folder;
  const auto print_of = [&](const Json& tokenizer) {
    return folder.put("tokenizer.json", tokenizer).load()->fingerprint();
  };
  const std::string base = print_of(base_tokenizer());
  EXPECT_EQ(base.size(), 32U);
  EXPECT_EQ(base, print_of(base_tokenizer()));
  Json changed = base_tokenizer();
  changed["normalizer"] = {{"type", "NFC"}};
  EXPECT_NE(base, print_of(changed));
  changed = base_tokenizer();
  changed["added_tokens"][0]["special"] = false;
  EXPECT_NE(base, print_of(changed));
  changed = base_tokenizer();
  changed["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_NE(base, print_of(changed));
  folder.put("tokenizer_config.json", {{"chat_template", "t"}});
  EXPECT_NE(base, print_of(base_tokenizer()));
}

struct Refused {
  const char* path;
  Json value;
  const char* named;
};

TEST(Folder, UnknownComponentsAreNamed) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}};
  Json contiguous = split, bad_pattern = split, hex = split, nested = split;
  contiguous["behavior"] = "Contiguous";
  bad_pattern["pattern"] = {{"Regex", "(a"}};
  hex["pattern"] = {{"Regex", R"(\h+)"}};
  nested["pattern"] = {{"Regex", "[a&&[b]]"}};
  const std::vector<Refused> cases = {
      {"/model/type", "Unigram", "'Unigram'"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/model/unk_token", "<unk>", "'<unk>'"},
      {"/normalizer", {{"type", "Lowercase"}}, "'Lowercase'"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", Json::array({{{"type", "Replace"}}})}},
       "'Replace'"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "'Metaspace'"},
      {"/pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}}, "add_prefix_space"},
      {"/pre_tokenizer", contiguous, "'Contiguous'"},
      {"/pre_tokenizer", bad_pattern, "tokenizer pattern"},
      {"/pre_tokenizer", hex, "'\\h'"},
      {"/pre_tokenizer", nested, "inside a set"},
      {"/pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", {{{"type", "ByteLevel"}, {"add_prefix_space", false}}, split}}},
       "after ByteLevel"},
      {"/decoder", {{"type", "WordPiece"}}, "'WordPiece'"},
  };
  for (const Refused& c : cases) {
    Json file = base_tokenizer();
    file[Json::json_pointer(c.path)] = c.value;
    TempFolder folder;
    folder.put("tokenizer.json", file);
    EXPECT_THAT(error_of([&] { folder.load(); }), HasSubstr(c.named)) << c.path;
  }
}

TEST(Folder, DamagedFilesAreErrors) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"/model", 3},
      {"/model/vocab", Json::array({1})},
      {"/model/vocab/a", "zero"},
      {"/model/vocab/a", -1},
      {"/model/vocab/a", 1},
      {"/model/vocab/a", 1LL << 40},
      {"/model/merges", 7},
      {"/model/merges/0", 7},
      {"/model/ignore_merges", "yes"},
      {"/added_tokens", "x"},
      {"/added_tokens/0", Json::object()},
      {"/added_tokens/0/id", 1LL << 40},
      {"/normalizer", "NFC"},
      {"/pre_tokenizer", {{"type", "Sequence"}}},
      {"/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}}},
  };
  for (const auto& [path, value] : cases) {
    Json file = base_tokenizer();
    file[Json::json_pointer(path)] = value;
    TempFolder folder;
    folder.put("tokenizer.json", file);
    EXPECT_THAT(error_of([&] { folder.load(); }), HasSubstr("tokenizer.json")) << path << value;
  }
  TempFolder empty;
  EXPECT_THAT(error_of([&] { empty.load(); }), HasSubstr("not found"));
  write_text(empty.path() / "tokenizer.json", "{\"model\": ");
  EXPECT_THAT(error_of([&] { empty.load(); }), HasSubstr("not valid JSON"));
}

// Files come from strangers: whatever the damage, the file loads or an Error is thrown.
TEST(Folder, RandomDamageLoadsOrIsAnError) {
  const std::string whole = read_text(golden("mini_qwen2") / "tokenizer.json");
  TempFolder folder;
  int refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::string text = whole;
    for (uint64_t i = 0; i <= uniform_below(3, {seed}); ++i) {
      text[uniform_below(text.size(), {seed, i, 1})] =
          static_cast<char>("\"0:,]}{9\\x\xC3"[uniform_below(11, {seed, i, 2})]);
    }
    if (seed % 10 == 0) text.resize(uniform_below(text.size(), {seed, 3}));
    std::ofstream(folder.path() / "tokenizer.json", std::ios::binary) << text;
    try {
      const auto tokenizer = folder.load();
      tokenizer->decode(tokenizer->encode("The quick brown fox 12 e\u0301 <|im_end|>"));
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 400);
}

}  // namespace
}  // namespace dflash::text
