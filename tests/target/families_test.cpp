// The Qwen families against transformers on random small models (tests/golden/make_families.py),
// one pass and token by token, and their GGUF files, made by llama.cpp's own converter, against
// their folders.
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>

#include "helpers.h"
#include "target/families.h"
#include "target/load.h"
#include "target/mlp.h"
#include "target/random.h"
#include "target/transformer_weights.h"

namespace dflash::target {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<int64_t> listed(const at::Tensor& ids) {
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

double largest(const at::Tensor& values) {
  return values.abs().max().item<double>();
}

class Family : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    want_ = nn::load_tensors(golden(std::string(GetParam()) + ".safetensors"));
    ids_ = listed(want_.at("ids"));
  }
  std::shared_ptr<const Target> load(nn::Compute compute) {
    return load_target(golden(GetParam()), {.compute = compute});
  }
  /// Within `relative` of the largest value expected.
  void expect_near(const at::Tensor& got, const std::string& key, double relative) {
    expect_within(got, want_.at(key), relative * largest(want_.at(key)), key);
  }

  std::map<std::string, at::Tensor> want_;
  std::vector<int64_t> ids_;
};

// Up to 4 blocks of chained products, and in delta nets sums of chunks in another order: 128 eps.
TEST_P(Family, F32EqualsTransformers) {
  const double bound = 128 * 1.2e-7;
  const auto target = load(nn::Compute::kF32);
  const int64_t layers = target->config().num_layers, width = target->config().hidden_size;
  std::vector<int64_t> taps;
  for (int64_t tap = -1; tap < layers; ++tap) taps.push_back(tap);
  const auto state = target->new_state();
  const Hidden hidden = advance(*target, *state, ids_, taps);
  for (int64_t i = 0; i <= layers; ++i) {
    expect_near(hidden.taps_RF.narrow(1, i * width, width), fmt::format("f32.hidden.{}", i), bound);
  }
  expect_near(target->final_norm(hidden.last_RD), "f32.normed", bound);
  expect_near(logits(*target, hidden.last_RD), "f32.logits", bound);
}

TEST_P(Family, TokenByTokenEqualsTransformers) {
  const auto target = load(nn::Compute::kF32);
  const auto state = target->new_state();
  std::vector<at::Tensor> rows;
  for (const int64_t id : ids_) rows.push_back(advance(*target, *state, {id}).last_RD);
  expect_near(logits(*target, at::cat(rows)), "f32.step_logits", 128 * 1.2e-7);
}

// transformers rounds the residual, norms, gates and states' inputs to bf16 (eps 2^-8) too, which
// we do not: about twenty roundings of 4 blocks in quadrature, and single elements twice as far.
TEST_P(Family, Bf16StaysNearTransformers) {
  const auto target = load(nn::Compute::kBF16);
  const auto state = target->new_state();
  const Hidden hidden = advance(*target, *state, ids_);
  expect_near(target->final_norm(hidden.last_RD), "bf16.normed", 10.0 / 256);
  expect_near(logits(*target, hidden.last_RD), "bf16.logits", 10.0 / 256);
}

INSTANTIATE_TEST_SUITE_P(Switches, Family,
                         testing::Values("qwen3", "qwen3_tied_bias", "qwen3_yarn",
                                         "qwen3_yarn_mscale", "qwen3_linear", "qwen3_sliding",
                                         "qwen3_moe", "qwen3_moe_mixed", "qwen35", "qwen35_text",
                                         "qwen35_moe"),
                         [](const auto& info) { return std::string(info.param); });

class FamilyGguf : public testing::TestWithParam<const char*> {};

/// Weights of a block by name, experts stacked whatever the file does.
std::map<std::string, at::Tensor> block(const Target& target, int64_t layer) {
  std::map<std::string, at::Tensor> out;
  std::map<std::string, std::vector<at::Tensor>> single;
  for (const auto& [name, values] : target.layer_weights(layer)) {
    const size_t part = name.rfind('.', name.rfind(".weight") - 1);
    if (name.starts_with("mlp.experts.") && name.ends_with(".weight")) {
      single["mlp.experts" + name.substr(part, name.rfind('.') - part)].push_back(values);
    } else {
      out[name] = values;
    }
  }
  for (const auto& [name, matrices] : single) out[name] = at::stack(matrices);
  if (out.contains("mlp.experts.gate_proj")) {
    out["mlp.experts.gate_up_proj"] =
        at::cat({out["mlp.experts.gate_proj"], out["mlp.experts.up_proj"]}, 1);
    out.erase("mlp.experts.gate_proj");
    out.erase("mlp.experts.up_proj");
  }
  return out;
}

// Value heads are put back, 1 is taken from zero-centred norms, A_log is the logarithm again: all
// weights are the folder's, and so is the model.
TEST_P(FamilyGguf, EqualsTheFolder) {
  const std::string name = GetParam();
  const auto folder = load_target(golden(name), {}), gguf = load_target(golden(name + ".gguf"), {});
  EXPECT_EQ(gguf->config().family, folder->config().family);
  ASSERT_EQ(gguf->config().num_layers, folder->config().num_layers);
  for (int64_t layer = 0; layer < folder->config().num_layers; ++layer) {
    const auto want = block(*folder, layer), got = block(*gguf, layer);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [weight, values] : want) {
      ASSERT_TRUE(got.contains(weight)) << weight;
      // exp and log in f32 lose an eps or two of values up to 4; w + 1 - 1 loses what is far
      // below 1.
      const bool rounded = weight.ends_with("A_log") || weight.ends_with("norm.weight");
      expect_within(got.at(weight), values, rounded ? 1e-6 : 0, weight);
    }
  }
  const std::vector<int64_t> ids = {3, 17, 63, 0, 41, 41, 8, 60, 2, 33, 12, 5, 29, 1, 50, 18};
  const auto s = folder->new_state(), t = gguf->new_state();
  const at::Tensor want = advance(*folder, *s, ids).last_RD;
  expect_within(advance(*gguf, *t, ids).last_RD, want, 1e-5 * largest(want), "residual");
}

INSTANTIATE_TEST_SUITE_P(Files, FamilyGguf,
                         testing::Values("qwen3", "qwen3_yarn", "qwen3_linear", "qwen3_moe",
                                         "qwen35", "qwen35_moe"),
                         [](const auto& info) { return std::string(info.param); });

/// Uniform in (-1, 1) from element and tensor number, as in make_families.py.
at::Tensor formula(const std::vector<int64_t>& shape, uint64_t number) {
  at::Tensor values = at::empty(shape, at::kFloat);
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    auto x =
        static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761ULL + (number + 1) * 974711);
    for (int round = 0; round < 2; ++round) x = (x ^ x >> 16) * 73244475U;
    out[i] = static_cast<float>(static_cast<double>(x ^ x >> 16) / 2147483648.0 - 1);
  }
  return values;
}

std::map<std::string, at::Tensor> formula_weights(const TransformerConfig& config) {
  std::map<std::string, at::Tensor> weights;
  for (const WeightSpec& spec : transformer_specs(config))
    weights[spec.name] = at::empty(spec.shape);
  uint64_t number = 0;
  for (auto& [name, weight] : weights) {
    at::Tensor values = formula(weight.sizes().vec(), number++);
    if (name.ends_with("norm.weight")) {
      values = values * 0.1F + (name.ends_with("linear_attn.norm.weight") ? 1 : 0);
    } else if (name.ends_with("A_log")) {
      values = values - 1;
    } else if (!name.starts_with("embed") && !name.ends_with("dt_bias")) {
      values = values * (1.0 / std::sqrt(static_cast<double>(values.size(-1))));
    }
    weight = values;
  }
  return weights;
}

// Qwen3.6-27B's layout scaled down: 64 blocks, three delta nets to one attention, three value heads
// a key head, taps 1, 16, 31, 46, 61; prompts longer than the chunks that transformers sums in.
TEST(Qwen36Layout, TapsEqualTransformers) {
  const auto want = nn::load_tensors(golden("qwen36_layout.safetensors"));
  TransformerConfig config = tiny_qwen35_config();
  config.hidden_size = config.intermediate_size = 16;
  config.num_layers = 64;
  config.num_heads = 6, config.num_kv_heads = 1, config.head_dim = 8;
  config.vocab_size = 64, config.max_positions = 128;
  config.rms_norm_eps = 1e-6;
  config.rope = {.theta = 1e7, .rotary_dim = 4};
  config.mixers.clear();
  for (int64_t layer = 0; layer < 64; ++layer) {
    config.mixers.push_back(layer % 4 == 3 ? Mixer::kAttention : Mixer::kDelta);
  }
  config.delta = {.key_heads = 1, .value_heads = 3, .key_dim = 8, .value_dim = 8, .conv_taps = 4};
  const auto target = make_target(config, formula_weights(config), nn::Compute::kF32);
  const std::vector<int64_t> taps = default_taps(64, 5);
  const auto state = target->new_state();
  const Hidden hidden = advance(*target, *state, listed(want.at("ids")), taps);
  // Rounding grows along 64 blocks: transformers in f32 is 6e-6 of the largest value away from
  // itself in f64. A wrong tap differs by all of it.
  for (size_t i = 0; i < taps.size(); ++i) {
    const std::string key = fmt::format("tap.{}", taps[i]);
    const at::Tensor rows =
        hidden.taps_RF.narrow(1, static_cast<int64_t>(i) * 16, 16).index_select(0, want.at("rows"));
    expect_within(rows, want.at(key), 5e-5 * largest(want.at(key)), key);
  }
  const at::Tensor rows = hidden.last_RD.index_select(0, want.at("rows"));
  expect_within(logits(*target, rows), want.at("logits"), 5e-5 * largest(want.at("logits")),
                "logits");
}

Json qwen3_json() {
  return {{"model_type", "qwen3"},         {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 4},        {"num_attention_heads", 4}, {"vocab_size", 96},
          {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-6},     {"rope_theta", 1e6}};
}

Json qwen35_json() {
  Json json = qwen3_json();
  json.update({{"model_type", "qwen3_5_text"},
               {"num_hidden_layers", 8},
               {"linear_num_key_heads", 2},
               {"linear_num_value_heads", 4},
               {"linear_key_head_dim", 8},
               {"linear_value_head_dim", 8}});
  return json;
}

TransformerConfig qwen3(const Json& json) {
  return qwen3_config(ConfigReader(json, "config.json"));
}
TransformerConfig qwen35(const Json& json) {
  return qwen35_config(ConfigReader(json, "config.json"));
}

std::string kinds(const TransformerConfig& config) {
  std::string text;
  for (const Mixer mixer : config.mixers) text += mixer == Mixer::kDelta ? 'L' : 'F';
  return text;
}

// R-EX-1
TEST(FamilyConfig, KindsOfLayers) {
  EXPECT_EQ(kinds(qwen35(qwen35_json())), "LLLFLLLF");
  Json json = qwen35_json();
  json["full_attention_interval"] = 2;
  EXPECT_EQ(kinds(qwen35(json)), "LFLFLFLF");
  json["layer_types"] = std::vector<std::string>(7, "linear_attention");
  EXPECT_THAT(error_of([&] { qwen35(json); }), AllOf(HasSubstr("8"), HasSubstr("7")));
  json["layer_types"] = std::vector<std::string>(8, "sliding_attention");
  EXPECT_THAT(error_of([&] { qwen35(json); }),
              AllOf(HasSubstr("sliding_attention"), HasSubstr("linear_attention, full_attention")));
  EXPECT_TRUE(qwen3(qwen3_json()).windows.empty());
  json = qwen3_json();
  json["sliding_window"] = 4096;  // without use_sliding_window it has no effect
  EXPECT_TRUE(qwen3(json).windows.empty());
  json.update({{"use_sliding_window", true}, {"max_window_layers", 2}});
  EXPECT_EQ(qwen3(json).windows, (std::vector<int64_t>{0, 0, 4096, 4096}));
}

// R-EX-2, R-EX-3
TEST(FamilyConfig, HeadDimAndRotation) {
  EXPECT_EQ(qwen3(qwen3_json()).head_dim, 128);
  EXPECT_EQ(qwen3(qwen3_json()).rope.rotary_dim, 0);
  EXPECT_EQ(qwen35(qwen35_json()).head_dim, 256);
  EXPECT_EQ(qwen35(qwen35_json()).rope.rotary_dim, 64);
  Json json = qwen35_json();
  json["rope_parameters"] = {{"partial_rotary_factor", 0.5}};
  EXPECT_EQ(qwen35(json).rope.rotary_dim, 128);
  json["partial_rotary_factor"] = 0.25;
  EXPECT_THAT(error_of([&] { qwen35(json); }),
              AllOf(HasSubstr("rope_parameters.partial_rotary_factor is 0.5"), HasSubstr("0.25")));
}

TEST(FamilyConfig, SwitchesThatAreNotThere) {
  for (const auto& [key, value] : {std::pair<std::string, Json>{"attn_output_gate", false},
                                   {"output_gate_type", "sigmoid"},
                                   {"mamba_ssm_dtype", "bfloat16"},
                                   {"linear_num_value_heads", 3},
                                   {"linear_conv_kernel_dim", 1},
                                   {"full_attention_interval", 0},
                                   {"some_new_key", 3}}) {
    Json json = qwen35_json();
    json[key] = value;
    EXPECT_THAT(error_of([&] { qwen35(json); }),
                testing::AnyOf(HasSubstr(key), HasSubstr("linear value heads")))
        << key;
  }
}

TEST(FamilyConfig, Experts) {
  Json json = qwen3_json();
  json.update({{"model_type", "qwen3_moe"},
               {"num_experts", 8},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 16},
               {"decoder_sparse_step", 2},
               {"mlp_only_layers", {3}}});
  EXPECT_EQ(qwen3(json).moe_blocks, (std::vector<bool>{false, true, false, false}));
  EXPECT_FALSE(qwen3(json).moe.norm_topk_prob);
  json["num_experts_per_tok"] = 9;
  EXPECT_THAT(error_of([&] { qwen3(json); }), AllOf(HasSubstr("8"), HasSubstr("9")));
}

// Softmax over all experts first: weights of the chosen ones sum to one only where asked.
TEST(Experts, RoutesAreAscendingAndTiesGoToTheLowest) {
  const at::Tensor logits_RE = at::tensor({0.0F, 2.0F, 1.0F, 2.0F, 2.0F}).view({1, 5});
  MoeConfig config = {.num_experts = 5, .experts_per_token = 2};
  const double total = std::exp(-2.0) + 3 + std::exp(-1.0);
  const auto plain = route(logits_RE, config);
  ASSERT_EQ(plain[0].size(), 2U);
  EXPECT_EQ(plain[0][0].expert, 1);
  EXPECT_EQ(plain[0][1].expert, 3);
  EXPECT_NEAR(plain[0][0].weight, 1 / total, 1e-7);
  config.norm_topk_prob = true;
  EXPECT_NEAR(route(logits_RE, config)[0][1].weight, 0.5, 1e-7);
}

// R-EX-10: w = 0 with x = (3, 4): a plain norm gives 0, a zero-centred one (.848528, 1.131371).
TEST(Norms, ZeroCentredAddOne) {
  TransformerConfig config = tiny_llama_config();
  config.hidden_size = 2;
  config.rms_norm_eps = 1e-12;
  auto weights = random_weights(config, 1);
  weights["norm.weight"].zero_();
  const at::Tensor x = at::tensor({3.0F, 4.0F}).view({1, 2});
  const auto plain = make_target(config, weights, nn::Compute::kF32);
  expect_bits_equal(plain->final_norm(x), at::zeros({1, 2}), "plain");
  config.zero_centred_norms = true;
  const auto centred = make_target(config, weights, nn::Compute::kF32);
  expect_within(centred->final_norm(x), at::tensor({.848528F, 1.131371F}).view({1, 2}), 1e-6,
                "zero-centred");
}

}  // namespace
}  // namespace dflash::target
