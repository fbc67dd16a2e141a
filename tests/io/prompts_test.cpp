// The bundled prompts: readable, counted, unique, train and held-out apart by topic, and clear of
// the evaluation set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/jsonl.h"
#include "support/temp_folder.h"

namespace dflash::io {
namespace {

using dflash::testing::source_path;

struct Prompt {
  std::string id, kind, topic, prompt;
};

std::vector<Prompt> read_prompts(const char* path) {
  std::vector<Prompt> prompts;
  read_jsonl(source_path(path), {}, [&](int64_t, const Json& record) {
    EXPECT_EQ(record.size(), 4U);
    prompts.push_back(
        {record.at("id"), record.at("kind"), record.at("topic"), record.at("prompt")});
  });
  return prompts;
}

class Prompts : public ::testing::Test {
 protected:
  const std::vector<Prompt> train_ = read_prompts("prompts/train.jsonl");
  const std::vector<Prompt> heldout_ = read_prompts("prompts/heldout.jsonl");
  std::vector<Prompt> all_ = [this] {
    std::vector<Prompt> all = train_;
    all.insert(all.end(), heldout_.begin(), heldout_.end());
    return all;
  }();
};

TEST_F(Prompts, CountsAndShares) {
  std::map<std::string, size_t> train, heldout;
  for (const Prompt& prompt : train_) train[prompt.kind] += 1;
  for (const Prompt& prompt : heldout_) heldout[prompt.kind] += 1;
  EXPECT_GE(train_.size(), 2000U);
  EXPECT_LE(train_.size(), 2500U);
  EXPECT_EQ(train.size(), 6U);
  EXPECT_NEAR(static_cast<double>(train["code"]) / static_cast<double>(train_.size()), 0.35, 0.02);
  ASSERT_EQ(heldout.size(), 6U);
  for (const auto& [kind, count] : heldout) {
    EXPECT_EQ(count, heldout_.size() / 6) << kind;
    EXPECT_GE(train[kind], 250U) << kind;
  }
}

TEST_F(Prompts, IdsAndTextsAreUniqueAndWhole) {
  std::set<std::string> ids, texts;
  for (const Prompt& prompt : all_) {
    EXPECT_TRUE(ids.insert(prompt.id).second) << prompt.id;
    EXPECT_TRUE(texts.insert(prompt.prompt).second) << prompt.id;
    EXPECT_GE(prompt.prompt.size(), 12U) << prompt.id;
    EXPECT_LE(prompt.prompt.size(), 700U) << prompt.id;
    for (const char* field : {"{topic}", "{what}", "{name}", "{stub}", "{=", "{a"}) {
      EXPECT_EQ(prompt.prompt.find(field), std::string::npos) << prompt.id;
    }
  }
}

TEST_F(Prompts, NoTopicIsShared) {
  std::set<std::string> topics;
  for (const Prompt& prompt : train_) topics.insert(prompt.topic);
  EXPECT_GE(topics.size(), 800U);
  for (const Prompt& prompt : heldout_) EXPECT_FALSE(topics.contains(prompt.topic)) << prompt.topic;
}

/// Words and single punctuation marks.
std::vector<std::string> tokens(const std::string& text) {
  std::vector<std::string> out;
  bool in_word = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool word = std::isalnum(byte) != 0 || c == '_' || byte >= 0x80;
    if (word && in_word) {
      out.back() += c;
    } else if (word || std::isspace(byte) == 0) {
      out.emplace_back(1, c);
    }
    in_word = word;
  }
  return out;
}

/// Every run of 13 tokens, joined.
std::set<std::string> runs(const std::string& text) {
  constexpr size_t kRun = 13;
  const auto parts = tokens(text);
  std::set<std::string> out;
  for (size_t i = 0; i + kRun <= parts.size(); ++i) {
    std::string run;
    for (size_t j = i; j < i + kRun; ++j) run += parts[j] + ' ';
    out.insert(run);
  }
  return out;
}

TEST_F(Prompts, ShareNoRunWithHumanEval) {
  const auto path = source_path("assets/HumanEval.jsonl");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  std::set<std::string> known;
  read_jsonl(path, {}, [&](int64_t, const Json& record) {
    for (const char* key : {"prompt", "canonical_solution", "test"}) {
      known.merge(runs(record.at(key).get<std::string>()));
    }
  });
  ASSERT_GT(known.size(), 10000U);
  for (const Prompt& prompt : all_) {
    for (const std::string& run : runs(prompt.prompt)) {
      EXPECT_FALSE(known.contains(run)) << prompt.id << ": " << run;
    }
  }
}

}  // namespace
}  // namespace dflash::io
