// Against transformers' LlamaForCausalLM on random 2-layer models (tests/golden/make_target.py):
// every hidden state and the logits, in f32 and in bf16.
#include <gmock/gmock.h>

#include "helpers.h"
#include "target/load.h"

namespace dflash::target {
namespace {

using testing::HasSubstr;

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void compare(nn::Compute compute, double relative) {
    const std::string name = GetParam();
    const auto want = nn::load_tensors(golden(name + ".safetensors"));
    const auto target = load_target(golden(name), {.compute = compute});
    const at::Tensor ids = want.at("ids");
    const std::vector<int64_t> list(ids.const_data_ptr<int64_t>(),
                                    ids.const_data_ptr<int64_t>() + ids.numel());
    const auto state = target->new_state();
    const Hidden hidden = advance(*target, *state, list, {-1, 0, 1});
    const std::string kind = std::string(nn::compute_name(compute)) + ".";
    const int64_t width = target->config().hidden_size;
    for (int64_t tap = 0; tap < 3; ++tap) {
      const at::Tensor expected = want.at(kind + "hidden." + std::to_string(tap));
      expect_within(hidden.taps_RF.narrow(1, tap * width, width), expected,
                    relative * expected.abs().max().item<double>(), "tap " + std::to_string(tap));
    }
    // The last tap is the raw residual, before the final norm (MODELS.md 3.9).
    expect_bits_equal(hidden.taps_RF.narrow(1, 2 * width, width), hidden.last_RD, "last tap");
    const at::Tensor normed = want.at(kind + "normed"), expected = want.at(kind + "logits");
    expect_within(target->final_norm(hidden.last_RD), normed,
                  relative * normed.abs().max().item<double>(), "normed");
    expect_within(logits(*target, hidden.last_RD), expected,
                  relative * expected.abs().max().item<double>(), "logits");
  }
};

// 2 blocks of 4 chained products each: 32 eps of f32 leaves room for the order of sums only.
TEST_P(Golden, F32EqualsTransformers) {
  compare(nn::Compute::kF32, 32 * 1.2e-7);
}

// transformers rounds the residual, norms and attention to bf16 (eps 2^-8) too, which we do not:
// about ten roundings on the way, and a sum over them in quadrature stays below 10 eps.
TEST_P(Golden, Bf16StaysNearTransformers) {
  compare(nn::Compute::kBF16, 10.0 / 256);
}

INSTANTIATE_TEST_SUITE_P(Switches, Golden,
                         testing::Values("gqa", "mha", "mqa", "head_dim", "attention_bias",
                                         "mlp_bias", "tied", "llama3_v4", "llama3_v5", "sharded",
                                         "half", "bfloat"),
                         [](const auto& info) { return std::string(info.param); });

class GgufTwin : public testing::TestWithParam<const char*> {};

// The converter's row order and llama3 factors are undone: same model, same bits of the weights.
TEST_P(GgufTwin, EqualsTheFolder) {
  const std::string name = GetParam();
  const auto folder = load_target(golden(name), {});
  const auto gguf = load_target(golden(name + ".gguf"), {});
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto a = folder->layer_weights(layer), b = gguf->layer_weights(layer);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      expect_bits_equal(a[i].second, b[i].second, a[i].first);
    }
  }
  const std::vector<int64_t> ids = {3, 17, 95, 0, 41, 41, 8, 60, 77, 2, 33, 12, 90, 5, 64, 29};
  const auto s = folder->new_state(), t = gguf->new_state();
  const at::Tensor want = advance(*folder, *s, ids).last_RD;
  // The factors are stored as f32: angles differ in the last bits.
  expect_within(advance(*gguf, *t, ids).last_RD, want, 1e-5 * want.abs().max().item<double>(),
                "residual");
  EXPECT_EQ(gguf->config().eos_ids, (std::vector<int64_t>{2, 7}));
}

INSTANTIATE_TEST_SUITE_P(Files, GgufTwin, testing::Values("gqa", "attention_bias", "llama3_v4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GgufQuantised, WidensAndSaysSo) {
  const auto folder = load_target(golden("tied"), {});
  const auto gguf = load_target(golden("tied.gguf"), {.compute = nn::Compute::kBF16});
  EXPECT_THAT(gguf->storage(), HasSubstr("Q4_1"));
  EXPECT_THAT(gguf->storage(), HasSubstr("as bf16"));
  EXPECT_TRUE(gguf->config().tied_embeddings);
  const auto want = folder->layer_weights(1), got = gguf->layer_weights(1);
  for (size_t i = 0; i < want.size(); ++i) {
    // Q4_1 has 16 levels a block of 32: at most half a level (range / 30) off, plus f16 scales.
    expect_within(got[i].second, want[i].second, want[i].second.abs().max().item<double>() / 14,
                  want[i].first);
  }
}

TEST(Folder, EndIdsAreTheUnionOfBothConfigs) {
  EXPECT_EQ(load_target(golden("gqa"), {})->config().eos_ids, (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(load_target(golden("mha"), {})->config().eos_ids, (std::vector<int64_t>{2, 5, 7}));
}

TEST(Fingerprint, NamesTheModel) {
  const std::string gqa = load_target(golden("gqa"), {})->fingerprint();
  EXPECT_EQ(gqa.size(), 32U);
  EXPECT_EQ(gqa, load_target(golden("gqa"), {.compute = nn::Compute::kBF16})->fingerprint());
  EXPECT_NE(gqa, load_target(golden("sharded"), {})->fingerprint());
  // Same random weights but for the seed; v4 and v5 differ in weights, scaling differs from gqa.
  EXPECT_NE(gqa, load_target(golden("llama3_v4"), {})->fingerprint());
}

}  // namespace
}  // namespace dflash::target
