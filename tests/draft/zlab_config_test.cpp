// config.json of z-lab's format: spellings of MODELS.md 4.3, refusals by name, R-EX-1, R-EX-2,
// R-EX-3, R-EX-5; fallback taps, R-CAP-1.
#include "draft/zlab.h"

#include "base/error.h"
#include "base/taps.h"
#include "draft/fixtures.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;

Json base_config() {
  return Json::parse(R"({
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu",
    "num_hidden_layers": 4, "hidden_size": 2048, "intermediate_size": 6144,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_scaling": null, "attention_bias": false,
    "num_target_layers": 36, "block_size": 16, "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16", "transformers_version": "4.57.1", "auto_map": {"AutoModel": "x"},
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]}})");
}

DraftSpec parse(const Json& config, int64_t target_layers = 0) {
  return parse_zlab_config(config, "config.json", target_layers);
}

std::string refusal(const Json& config) {
  try {
    parse(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const Json& config, const std::string& part) {
  const std::string message = refusal(config);
  EXPECT_NE(message.find(part), std::string::npos) << "message: '" << message << "'";
}

void expect_rule(const LayerRule& rule, int64_t window, InBlock in_block,
                 Bound bound = Bound::kQuery) {
  EXPECT_EQ(rule.window, window);
  EXPECT_EQ(rule.in_block, in_block);
  EXPECT_EQ(rule.bound, bound);
}

TEST(ZlabConfig, PlainFile) {
  const DraftSpec spec = parse(base_config());
  EXPECT_EQ(spec.num_layers, 4);
  EXPECT_EQ(spec.hidden_size, 2048);
  EXPECT_EQ(spec.target_hidden_size, 2048);
  EXPECT_EQ(spec.taps, (std::vector<int64_t>{1, 9, 17, 25, 33}));
  EXPECT_EQ(spec.rule.block_size, 16);
  EXPECT_EQ(spec.rule.mask_id, 151669);
  EXPECT_EQ(spec.rule.slot_shift, 0);
  EXPECT_EQ(spec.rope.theta, 1e6);
  EXPECT_EQ(spec.max_positions, 40960);
  for (const LayerRule& rule : spec.rule.layers) expect_rule(rule, 0, InBlock::kBidirectional);
}

TEST(ZlabConfig, BlockSizeAtEitherPlace) {  // R-EX-5
  Json config = base_config();
  config["dflash_config"]["block_size"] = 16;
  EXPECT_EQ(parse(config).rule.block_size, 16);
  config.erase("block_size");
  EXPECT_EQ(parse(config).rule.block_size, 16);
  config["block_size"] = 8;
  expect_refused(config, "got 8 at the top and 16 in dflash_config");
  config = base_config();
  config.erase("block_size");
  expect_refused(config, "block_size");
  for (const int64_t wrong : {1, 0, -4}) {
    config["block_size"] = wrong;
    expect_refused(config, "block size");
  }
  config["block_size"] = 7.5;
  expect_refused(config, "block_size");
}

TEST(ZlabConfig, TapsFlatNestedOrDerived) {  // R-CAP-1, MODELS.md 4.3
  Json config = base_config();
  config["dflash_config"].erase("target_layer_ids");
  config["target_layer_ids"] = {2, 5};
  EXPECT_EQ(parse(config).taps, (std::vector<int64_t>{2, 5}));
  config.erase("target_layer_ids");
  config["num_target_layers"] = 30;
  config["num_hidden_layers"] = 5;
  EXPECT_EQ(parse(config).taps, (std::vector<int64_t>{1, 8, 14, 20, 27}));
  config.erase("num_target_layers");
  expect_refused(config, "target_layer_ids");
  EXPECT_EQ(parse(config, 30).taps, (std::vector<int64_t>{1, 8, 14, 20, 27}));
  config = base_config();
  EXPECT_THROW(parse(config, 30), Error);  // says 36
  config["dflash_config"]["target_layer_ids"] = {1, 36};
  expect_refused(config, "target_layer_ids");
  config = base_config();  // TorchSpec: the target's depth has its own key
  config["model_type"] = "dflash";
  config["num_target_layers"] = 5;
  config["target_num_hidden_layers"] = 36;
  EXPECT_EQ(parse(config).target_num_layers, 36);
}

TEST(Taps, HalvesRoundToEven) {  // R-CAP-1
  using Taps = std::vector<int64_t>;
  EXPECT_EQ(spread_taps(36, 5), (Taps{1, 9, 17, 25, 33}));
  EXPECT_EQ(spread_taps(64, 5), (Taps{1, 16, 31, 46, 61}));
  EXPECT_EQ(spread_taps(40, 8), (Taps{1, 6, 11, 16, 22, 27, 32, 37}));
  EXPECT_EQ(spread_taps(32, 5), (Taps{1, 8, 15, 22, 29}));
  EXPECT_EQ(spread_taps(35, 3), (Taps{1, 16, 32}));
  EXPECT_EQ(spread_taps(62, 5), (Taps{1, 16, 30, 44, 59}));
  EXPECT_EQ(spread_taps(26, 5), (Taps{1, 6, 12, 18, 23}));
  EXPECT_EQ(spread_taps(22, 5), (Taps{1, 6, 10, 14, 19}));
  EXPECT_EQ(spread_taps(31, 1), (Taps{15}));
  EXPECT_THROW(spread_taps(6, 5), Error);
  EXPECT_THROW(spread_taps(36, 0), Error);
}

TEST(ZlabConfig, MaskIdHasNoDefault) {
  Json config = base_config();
  config["dflash_config"].erase("mask_token_id");
  expect_refused(config, "mask_token_id");
  config["mask_token_id"] = 12;
  EXPECT_EQ(parse(config).rule.mask_id, 12);
  config["mask_token_id"] = 151936;
  expect_refused(config, "mask id");
}

TEST(ZlabConfig, LayerTypes) {  // R-EX-1
  Json config = base_config();
  config["use_sliding_window"] = true;
  config["sliding_window"] = 2048;
  config["max_window_layers"] = 2;
  std::vector<LayerRule> rules = parse(config).rule.layers;
  expect_rule(rules[1], 0, InBlock::kBidirectional);
  expect_rule(rules[2], 2048, InBlock::kCausal);
  expect_rule(rules[3], 2048, InBlock::kCausal);

  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  rules = parse(config).rule.layers;
  expect_rule(rules[0], 2048, InBlock::kCausal);
  expect_rule(rules[2], 0, InBlock::kBidirectional);
  config["is_causal"] = false;
  expect_rule(parse(config).rule.layers[0], 2048, InBlock::kBidirectional);
  config["is_causal"] = true;
  expect_rule(parse(config).rule.layers[2], 0, InBlock::kCausal);
  config.erase("is_causal");
  config["dflash_config"]["causal"] = false;
  expect_rule(parse(config).rule.layers[0], 2048, InBlock::kBidirectional);
  config["is_causal"] = true;  // two answers
  EXPECT_THROW(parse(config), Error);
  config.erase("is_causal");
  config["dflash_config"].erase("causal");

  config["use_sliding_window"] = false;  // the gate: whole context, block still causal
  rules = parse(config).rule.layers;
  expect_rule(rules[0], 0, InBlock::kCausal);
  expect_rule(rules[1], 0, InBlock::kBidirectional);

  config["layer_types"].push_back("full_attention");
  expect_refused(config, "layer_types");
  config["layer_types"] = {"full_attention", "full_attention", "full_attention", "mamba"};
  expect_refused(config, "mamba");
  config.erase("layer_types");
  config["full_attention_interval"] = 4;
  expect_refused(config, "full_attention_interval");
}

// Our own rule beside a public key that says otherwise: z-lab's package would take the key.
TEST(ZlabConfig, OwnRulesAndIsCausalMustAgree) {
  Json config = zlab_config(small_spec({{}, {}}), nn::Compute::kF32);
  EXPECT_NO_THROW(parse(config));
  config["is_causal"] = false;
  EXPECT_NO_THROW(parse(config));
  config["is_causal"] = true;
  EXPECT_THROW(parse(config), Error);
}

TEST(ZlabConfig, AllLayersSlidingByUseSwa) {
  Json config = base_config();
  config["dflash_config"]["use_swa"] = true;
  config["dflash_config"]["swa_window_size"] = 128;
  for (const LayerRule& rule : parse(config).rule.layers) {
    expect_rule(rule, 128, InBlock::kBidirectional);
  }
}

TEST(ZlabConfig, HeadDim) {  // R-EX-2
  Json config = base_config();
  config.erase("head_dim");
  EXPECT_EQ(parse(config).head_dim, 128);
  config["hidden_size"] = 100;
  expect_refused(config, "head_dim");
  config = base_config();
  config["hidden_size"] = 5120;
  config["num_attention_heads"] = 24;
  config["head_dim"] = 256;
  const auto shapes = parameter_shapes(parse(config));
  EXPECT_EQ(shapes.at("layers.0.self_attn.q_proj.weight"), (std::vector<int64_t>{6144, 5120}));
  EXPECT_EQ(shapes.at("layers.0.self_attn.o_proj.weight"), (std::vector<int64_t>{5120, 6144}));
}

TEST(ZlabConfig, RopeSpellings) {  // R-EX-3
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    Json config = base_config();
    config.erase("rope_theta");
    config[place] = {{"rope_theta", 10000}, {"rope_type", "default"}};
    EXPECT_EQ(parse(config).rope.theta, 10000) << place;
    config["rope_theta"] = 1000000;
    expect_refused(config, "1000000");
    expect_refused(config, place);
  }
  Json config = base_config();
  config.erase("rope_theta");
  expect_refused(config, "rope_theta");
  config["rope_parameters"] = {{"full_attention", {{"rope_theta", 5e5}}},
                               {"sliding_attention", {{"rope_theta", 5e5}}}};
  EXPECT_EQ(parse(config).rope.theta, 5e5);
  config["rope_parameters"]["sliding_attention"]["rope_theta"] = 1e4;
  expect_refused(config, "rope_parameters");
  config = base_config();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  expect_refused(config, "yarn");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(parse(config).rope.factor, 8);
  config["rope_scaling"].erase("factor");
  expect_refused(config, "factor");
  config = base_config();
  config["partial_rotary_factor"] = 0.5;
  expect_refused(config, "partial_rotary_factor");
}

TEST(ZlabConfig, SlotConvention) {  // MODELS.md 4.5
  Json config = base_config();
  config["sample_from_anchor"] = true;
  EXPECT_EQ(parse(config).rule.slot_shift, 1);
  config.erase("sample_from_anchor");
  config["architectures"] = {"Qwen3DSparkModel"};
  config["markov_rank"] = 0;
  EXPECT_EQ(parse(config).rule.slot_shift, 1);
  config["markov_rank"] = 256;
  expect_refused(config, "markov_rank");
}

TEST(ZlabConfig, OtherModelsAreRefusedByName) {
  const std::vector<std::pair<const char*, Json>> nested = {
      {"attention_sink_bias", true}, {"input_embedding_scale", 50.5},
      {"output_multiplier", 0.2},    {"final_logit_softcapping", 20},
      {"conv_kernel_size", 2},       {"selector_rank", 256},
      {"projector_type", "domino"},  {"enable_confidence_head", true},
      {"shift_label", true},         {"attention_value_scale", 0.6},
      {"brand_new_key", 1}};
  for (const auto& [key, value] : nested) {
    Json config = base_config();
    config["dflash_config"][key] = value;
    expect_refused(config, key);
  }
  const std::vector<std::pair<const char*, Json>> root = {{"architectures", {"DominoDraftModel"}},
                                                          {"model_type", "llama4"},
                                                          {"hidden_act", "gelu"},
                                                          {"num_hidden_layers", 0},
                                                          {"vocab_size", -1},
                                                          {"hidden_size", 1e9},
                                                          {"num_key_value_heads", 5},
                                                          {"rms_norm_eps", 0},
                                                          {"dflash_config", 3}};
  for (const auto& [key, value] : root) {
    Json config = base_config();
    config[key] = value;
    EXPECT_NE(refusal(config), "") << key;
  }
  EXPECT_THROW(parse(Json::array()), Error);
}

}  // namespace
}  // namespace dflash::draft
