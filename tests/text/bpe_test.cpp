// Byte-pair encoding and the steps around it against plain twins, over random input.
#include "text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "base/rng.h"
#include "text/support.h"
#include "text/unicode.h"

namespace dflash::text {
namespace {

/// The rule as written: again and again the leftmost of the pairs of lowest rank.
std::vector<std::string> plain_merge(
    std::vector<std::string> parts,
    const std::map<std::pair<std::string, std::string>, int>& rank) {
  while (true) {
    int best = INT32_MAX;
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = rank.find({parts[i], parts[i + 1]});
      if (found != rank.end() && found->second < best) {
        best = found->second;
        place = i;
      }
    }
    if (best == INT32_MAX) return parts;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

/// A random merge table over the letters a to d.
TokenizerSpec random_spec(uint64_t seed) {
  TokenizerSpec spec;
  spec.source = "random";
  std::vector<std::string> tokens = {"a", "b", "c", "d"};
  std::set<std::string> known(tokens.begin(), tokens.end());
  for (uint64_t i = 0; i < 60; ++i) {
    const std::string& left = tokens[uniform_below(tokens.size(), {seed, i, 1})];
    const std::string& right = tokens[uniform_below(tokens.size(), {seed, i, 2})];
    const std::pair<std::string, std::string> merge(left, right);
    if (std::find(spec.merges.begin(), spec.merges.end(), merge) != spec.merges.end()) continue;
    spec.merges.push_back(merge);
    const std::string result = merge.first + merge.second;
    if (known.insert(result).second) tokens.push_back(result);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    spec.vocab.emplace_back(tokens[i], static_cast<int64_t>(i));
  }
  return spec;
}

TEST(Bpe, EqualsThePlainRuleAtEveryLength) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const TokenizerSpec spec = random_spec(seed);
    Vocabulary vocabulary;
    for (const auto& [token, id] : spec.vocab) vocabulary[token] = static_cast<int32_t>(id);
    std::map<std::pair<std::string, std::string>, int> rank;
    for (size_t i = 0; i < spec.merges.size(); ++i) rank[spec.merges[i]] = static_cast<int>(i);
    const Bpe bpe(spec, vocabulary);
    for (const uint64_t length : {1, 2, 3, 7, 20, 47, 48, 49, 50, 120, 400}) {
      std::vector<std::string> letters;
      std::string text;
      for (uint64_t i = 0; i < length; ++i) {
        letters.push_back(std::string(1, "aabcd"[uniform_below(5, {seed, length, i})]));
        text += letters.back();
      }
      std::vector<Symbol> got;
      bpe.encode(text, got);
      const std::vector<std::string> want = plain_merge(letters, rank);
      ASSERT_EQ(got.size(), want.size()) << seed << " " << length;
      size_t begin = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].id, vocabulary.at(want[i]));
        ASSERT_EQ(got[i].begin, begin);
        begin += want[i].size();
      }
    }
  }
}

TEST(Bpe, SymbolsWithoutAnEntryVanishOrBecomeUnknown) {
  TokenizerSpec spec = random_spec(1);
  spec.vocab.emplace_back("<unk>", 1000);
  const auto tokenizer_with = [&](bool unk, bool fuse) {
    TokenizerSpec made = spec;
    if (unk) made.unk_token = "<unk>";
    made.fuse_unk = fuse;
    return make_tokenizer(made);
  };
  const std::string text = "axx\xC3\xA9";
  EXPECT_EQ(tokenizer_with(false, false)->encode(text), (std::vector<int64_t>{0}));
  EXPECT_EQ(tokenizer_with(true, false)->encode(text), (std::vector<int64_t>{0, 1000, 1000, 1000}));
  EXPECT_EQ(tokenizer_with(true, true)->encode(text), (std::vector<int64_t>{0, 1000}));
}

TEST(Tokenizer, ManyThreadsAgree) {
  const auto tokenizer = Tokenizer::from_folder(golden("mini_qwen2"));
  const std::vector<std::string> texts = corpus();
  std::vector<std::vector<int64_t>> want;
  for (const std::string& text : texts) want.push_back(tokenizer->encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) wrong[t] += tokenizer->encode(texts[i]) != want[i];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

// Tokens' bytes put together are the text, broken bytes replaced; streaming gives the same.
TEST(Tokenizer, DecodeGivesTheTextBack) {
  const auto tokenizer = Tokenizer::from_folder(golden("mini_llama3"));
  for (const std::string& text : corpus()) {
    // These two swallow the white space beside them.
    if (text.find("<rgt>") != std::string::npos || text.find("<lft>") != std::string::npos)
      continue;
    const std::vector<int64_t> ids = tokenizer->encode(text);
    const std::string decoded = tokenizer->decode(ids);
    StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const int64_t id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.flush(), decoded);
    EXPECT_EQ(decoded, repair_utf8(text).text);
  }
}

// Random ids make broken UTF-8 of every kind: streaming must equal decoding at once.
TEST(Tokenizer, StreamingEqualsDecodingAtOnce) {
  const auto tokenizer = Tokenizer::from_folder(golden("mini_smollm"));
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < 20; ++i) {
      ids.push_back(static_cast<int64_t>(uniform_below(300, {seed, i})));
    }
    StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const int64_t id : ids) streamed += stream.push(id);
    ASSERT_EQ(streamed + stream.flush(), tokenizer->decode(ids)) << seed;
  }
}

}  // namespace
}  // namespace dflash::text
