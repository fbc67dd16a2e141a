// The real SmolLM2 (Q4_1 GGUF): drafted text equals plain text with the product's kernels, greedy
// and sampled, alone and in a batch.
#include <gtest/gtest.h>

#include "base/files.h"
#include "decode/proposers.h"
#include "support/paths.h"
#include "target/load.h"

namespace dflash::decode {
namespace {

const std::filesystem::path kTree = tree::root();

std::vector<Request> golden_requests(double temperature) {
  std::vector<Request> requests;
  for (const Json& item : read_json(kTree / "tests/golden/target/smol_greedy.json")) {
    if (requests.size() == 3) break;
    requests.push_back({.prompt = item.at("prompt"),
                        .sampling = {.temperature = temperature, .seed = requests.size()},
                        .max_new_tokens = 16,
                        .stop_ids = {2}});
  }
  return requests;
}

class Smol : public ::testing::TestWithParam<nn::Compute> {};

TEST_P(Smol, LookupKeepsTheText) {
  const auto path = kTree / "assets/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const auto target = target::load_target(path, {.compute = GetParam()});
  const auto lookup = make_lookup_proposer();
  for (double temperature : {0.0, 0.9}) {
    const std::vector<Request> requests = golden_requests(temperature);
    ASSERT_EQ(requests.size(), 3u);
    const auto together = generate(*target, lookup.get(), requests, {.max_batch = 3});
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto plain = generate(*target, nullptr, {requests[i]}, {.prefill_rows = 20});
      const auto alone = generate(*target, lookup.get(), {requests[i]});
      EXPECT_EQ(alone.results[0].tokens, plain.results[0].tokens) << i << " at " << temperature;
      EXPECT_EQ(together.results[i].tokens, plain.results[0].tokens) << i << " at " << temperature;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Smol, ::testing::Values(nn::Compute::kF32, nn::Compute::kBF16));

}  // namespace
}  // namespace dflash::decode
