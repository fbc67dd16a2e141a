// The lossless claim on every model family with random weights: recurrent states, experts and
// gates included (R-DEC-5, R-DEC-8).
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "decode/engine.h"
#include "decode/proposers.h"
#include "decode/test_proposers.h"
#include "target/random.h"

namespace dflash::decode {
namespace {

constexpr int64_t kVocab = 96, kMask = 95, kStop = 2;

struct Case {
  const char* family;
  target::TransformerConfig (*config)();
  nn::Compute compute;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    all.push_back({"Qwen3", target::tiny_qwen3_config, compute});
    all.push_back({"Qwen3Moe", target::tiny_qwen3_moe_config, compute});
    all.push_back({"Qwen35", target::tiny_qwen35_config, compute});
    all.push_back({"Qwen35Moe", target::tiny_qwen35_moe_config, compute});
  }
  return all;
}

/// Prompts of 1 to 30 tokens, every second one sampled.
std::vector<Request> requests(int64_t count) {
  std::vector<Request> all;
  for (int64_t i = 0; i < count; ++i) {
    const auto key = static_cast<uint64_t>(i);
    Request request{.sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .seed = 7 + key},
                    .max_new_tokens = 24,
                    .stop_ids = {kStop}};
    const int64_t length = i == 0 ? 1 : 1 + static_cast<int64_t>(uniform_below(30, {1, key}));
    for (int64_t t = 0; t < length; ++t) {
      request.prompt.push_back(
          static_cast<int64_t>(uniform_below(kVocab, {2, key, static_cast<uint64_t>(t)})));
    }
    all.push_back(request);
  }
  return all;
}

class FamilyLossless : public ::testing::TestWithParam<Case> {};

TEST_P(FamilyLossless, TextIsTheTargetsOwnAloneAndInABatch) {
  const auto target = target::make_random_target(GetParam().config(), 11, GetParam().compute);
  const std::vector<Request> all = requests(6);
  std::vector<Result> expected;
  fake::Oracle oracle;
  int64_t distinct = 0;
  for (const Request& request : all) {
    expected.push_back(generate(*target, nullptr, {request}).results[0]);
    const auto& tokens = expected.back().tokens;
    distinct += static_cast<int64_t>(std::set<int64_t>(tokens.begin(), tokens.end()).size());
    oracle.add(request.prompt, tokens);
  }
  EXPECT_GT(distinct, 18);  // texts that repeat one token would prove little
  for (const int64_t batch : {1, 4}) {
    const EngineOptions options = {.max_batch = batch, .prefill_rows = 7};
    const auto check = [&](Proposer* proposer, const std::string& who) {
      const auto got = generate(*target, proposer, all, options).results;
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(got[i].tokens, expected[i].tokens)
            << who << ", batch " << batch << ", request " << i;
      }
    };
    check(nullptr, "plain");
    for (fake::TestProposer& proposer : fake::all_characters(oracle, kVocab, kMask, kStop)) {
      proposer.watches_taps = false;
      check(&proposer, proposer.name());
    }
    const auto lookup = make_lookup_proposer();
    check(lookup.get(), "lookup");
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyLossless, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.family) +
         (info.param.compute == nn::Compute::kF32 ? "F32" : "Bf16");
});

}  // namespace
}  // namespace dflash::decode
