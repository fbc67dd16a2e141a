// Configs: every spelling in use, and an error that names what is wrong and what is known.
#include <gmock/gmock.h>

#include "base/files.h"
#include "helpers.h"
#include "target/families.h"
#include "target/load.h"

namespace dflash::target {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Json base_config() {
  return {{"model_type", "llama"},         {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 2},        {"num_attention_heads", 4}, {"vocab_size", 96},
          {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0}};
}

TransformerConfig parse(const Json& json) {
  return llama_config(ConfigReader(json, "config.json"));
}

Json with(const std::string& key, const Json& value) {
  Json json = base_config();
  json[key] = value;
  return json;
}

std::string parse_error(const Json& json) {
  return error_of([&] { parse(json); });
}

TEST(LlamaConfig, DefaultsOfMissingKeys) {
  const TransformerConfig config = parse(base_config());
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.rope.scaling, "default");
  EXPECT_EQ(config.rope_theta, 10000.0);
}

// R-EX-2
TEST(LlamaConfig, HeadDimIsExplicitOrDerivedWhenDivisible) {
  Json json = with("hidden_size", 2048);
  json["num_attention_heads"] = 16;
  EXPECT_EQ(parse(json).head_dim, 128);
  json["head_dim"] = nullptr;
  EXPECT_EQ(parse(json).head_dim, 128);
  json = with("hidden_size", 5120);
  json["num_attention_heads"] = 24;
  json["head_dim"] = 256;
  EXPECT_EQ(parse(json).q_rows(), 6144);
  json = with("hidden_size", 100);
  json["num_attention_heads"] = 16;
  EXPECT_THAT(parse_error(json), AllOf(HasSubstr("head_dim"), HasSubstr("100")));
}

// R-EX-3
TEST(LlamaConfig, RopeBaseInEveryPlace) {
  Json top = with("rope_theta", 500000.0);
  Json parameters = base_config(), scaling = base_config();
  parameters.erase("rope_theta");
  scaling.erase("rope_theta");
  parameters["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  scaling["rope_scaling"] = {{"type", "default"}, {"rope_theta", 500000.0}};
  for (const Json& json : {top, parameters, scaling}) EXPECT_EQ(parse(json).rope.theta, 500000.0);
  parameters["rope_theta"] = 10000.0;
  EXPECT_THAT(parse_error(parameters),
              AllOf(HasSubstr("rope_parameters.rope_theta"), HasSubstr("500000"),
                    HasSubstr("rope_theta is 10000")));
  EXPECT_THAT(parse_error(with("partial_rotary_factor", 0.25)), HasSubstr("partial_rotary_factor"));
}

TEST(LlamaConfig, Llama3ScalingInBothSpellings) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  Json v4 = with("rope_scaling", llama3), v5 = base_config(), both = base_config();
  v4["rope_scaling"]["type"] = "llama3";
  v5.erase("rope_theta");
  v5["rope_parameters"] = llama3;
  v5["rope_parameters"]["rope_type"] = "llama3";
  v5["rope_parameters"]["rope_theta"] = 10000.0;
  for (const Json& json : {v4, v5}) {
    const nn::RopeConfig rope = parse(json).rope;
    EXPECT_EQ(rope.scaling, "llama3");
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.original_max_positions, 8192);
    EXPECT_EQ(rope.theta, 10000.0);
  }
  both = v5;
  both["rope_scaling"] = v4["rope_scaling"];
  EXPECT_EQ(parse(both).rope.factor, 8.0);
  both["rope_scaling"]["factor"] = 32.0;
  EXPECT_THAT(parse_error(both), HasSubstr("disagree"));
  v4["rope_scaling"].erase("low_freq_factor");
  EXPECT_THAT(parse_error(v4), HasSubstr("low_freq_factor"));
}

TEST(LlamaConfig, LinearAndYarnScaling) {
  const nn::RopeConfig linear =
      parse(with("rope_scaling", {{"type", "linear"}, {"factor", 4.0}})).rope;
  EXPECT_EQ(linear.scaling, "linear");
  EXPECT_EQ(linear.factor, 4.0);
  Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  nn::RopeConfig rope = parse(with("rope_scaling", yarn)).rope;
  EXPECT_EQ(rope.original_max_positions, 64);  // max_position_embeddings
  EXPECT_EQ(rope.beta_fast, 32);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_TRUE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 1.138629, 1e-6);
  yarn.update({{"original_max_position_embeddings", 16},
               {"beta_fast", 8},
               {"beta_slow", nullptr},
               {"truncate", false},
               {"mscale", 1.0},
               {"mscale_all_dim", 0.5}});
  rope = parse(with("rope_scaling", yarn)).rope;
  EXPECT_EQ(rope.original_max_positions, 16);
  EXPECT_EQ(rope.beta_fast, 8);
  EXPECT_FALSE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 1.138629 / 1.0693147, 1e-6);
  yarn["attention_factor"] = 1.5;
  EXPECT_EQ(parse(with("rope_scaling", yarn)).rope.attention_factor, 1.5);
  yarn["beta_slow"] = 9;
  EXPECT_THAT(parse_error(with("rope_scaling", yarn)), HasSubstr("beta_slow"));
  EXPECT_THAT(parse_error(with("rope_scaling", {{"type", "linear"}})), HasSubstr("factor"));
  EXPECT_THAT(parse_error(with("rope_scaling", {{"type", "linear"}, {"factor", 0.5}})),
              HasSubstr("factor >= 1"));
}

TEST(LlamaConfig, UnknownScalingListsTheKnown) {
  const Json dynamic = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  EXPECT_THAT(parse_error(with("rope_scaling", dynamic)),
              AllOf(HasSubstr("unknown rope scaling dynamic"), HasSubstr("linear, llama3 and yarn"),
                    HasSubstr("length of the text")));
  const Json two = {{"rope_type", "default"}, {"type", "llama3"}};
  EXPECT_THAT(parse_error(with("rope_scaling", two)), HasSubstr("type"));
  const Json per_layer = {{"full_attention", {{"rope_theta", 1.0}}}};
  EXPECT_THAT(parse_error(with("rope_parameters", per_layer)), HasSubstr("full_attention"));
}

TEST(LlamaConfig, UnknownKeysAndValues) {
  EXPECT_THAT(parse_error(with("sliding_window", 4096)), HasSubstr("sliding_window"));
  EXPECT_THAT(parse_error(with("quantization_config", {{"bits", 4}})),
              HasSubstr("quantization_config"));
  EXPECT_THAT(parse_error(with("rope_interleaved", true)), HasSubstr("rope_interleaved"));
  EXPECT_THAT(parse_error(with("hidden_act", "gelu")), AllOf(HasSubstr("gelu"), HasSubstr("silu")));
  // Neutral values and notes of tools change nothing.
  EXPECT_NO_THROW(parse(with("sliding_window", nullptr)));
  EXPECT_NO_THROW(parse(with("rope_interleaved", false)));
  EXPECT_NO_THROW(parse(with("unsloth_version", "2025.1")));
  EXPECT_NO_THROW(parse(with("_name_or_path", "x")));
}

TEST(LlamaConfig, WrongTypesNameTheKey) {
  EXPECT_THAT(parse_error(with("hidden_size", "64")),
              AllOf(HasSubstr("hidden_size"), HasSubstr("64")));
  EXPECT_THAT(parse_error(with("hidden_size", 64.5)), HasSubstr("hidden_size"));
  EXPECT_THAT(parse_error(with("tie_word_embeddings", 1)), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(parse_error(with("eos_token_id", "2")), HasSubstr("eos_token_id"));
  EXPECT_THAT(parse_error(with("num_hidden_layers", 0)), HasSubstr("layers"));
  EXPECT_THAT(parse_error(with("num_hidden_layers", 18446744073709551615ULL)), HasSubstr("layers"));
  EXPECT_THAT(parse_error(with("num_key_value_heads", 3)), HasSubstr("kv heads"));
  EXPECT_THAT(parse_error(with("head_dim", 15)), HasSubstr("head dimension"));
  EXPECT_THAT(parse_error(with("rms_norm_eps", 0)), HasSubstr("rms_norm_eps"));
  Json json = base_config();
  json.erase("vocab_size");
  EXPECT_THAT(parse_error(json), HasSubstr("vocab_size"));
}

TEST(LlamaConfig, EndIdsAreOneOrMany) {
  EXPECT_EQ(parse(with("eos_token_id", 7)).eos_ids, std::vector<int64_t>{7});
  EXPECT_EQ(parse(with("eos_token_id", {7, 9})).eos_ids, (std::vector<int64_t>{7, 9}));
  EXPECT_TRUE(parse(with("eos_token_id", nullptr)).eos_ids.empty());
}

// R-EX-6: the tie flag may sit in text_config only, or at the top only.
TEST(LlamaConfig, NestedTextConfig) {
  Json inside = {{"model_type", "llama"}, {"text_config", base_config()}};
  EXPECT_EQ(parse(inside).hidden_size, 64);
  EXPECT_FALSE(parse(inside).tied_embeddings);
  inside["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(inside).tied_embeddings);
  Json outside = {{"model_type", "llama"}, {"text_config", base_config()}};
  outside["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(outside).tied_embeddings);
}

TEST(Load, UnknownFamilyListsTheKnown) {
  const auto folder = std::filesystem::temp_directory_path() / "dflash_unknown_family";
  write_text(folder / "config.json", R"({"model_type": "gpt2"})");
  EXPECT_THAT(error_of([&] { load_target(folder, {}); }),
              AllOf(HasSubstr("gpt2"), HasSubstr("llama, qwen3, qwen3_moe, qwen3_5,")));
  EXPECT_THAT(error_of([&] { load_target(folder / "absent", {}); }), HasSubstr("absent"));
  EXPECT_THAT(error_of([&] { load_target(folder / "config.json", {}); }), HasSubstr(".gguf"));
  std::filesystem::remove_all(folder);
}

// R-CAP-1
TEST(Taps, DefaultRule) {
  using List = std::vector<int64_t>;
  EXPECT_EQ(default_taps(36, 5), (List{1, 9, 17, 25, 33}));
  EXPECT_EQ(default_taps(64, 5), (List{1, 16, 31, 46, 61}));
  EXPECT_EQ(default_taps(40, 8), (List{1, 6, 11, 16, 22, 27, 32, 37}));
  EXPECT_EQ(default_taps(32, 5), (List{1, 8, 15, 22, 29}));
  EXPECT_EQ(default_taps(30, 5), (List{1, 8, 14, 20, 27}));
  EXPECT_EQ(default_taps(35, 3), (List{1, 16, 32}));
  EXPECT_EQ(default_taps(62, 5), (List{1, 16, 30, 44, 59}));
  EXPECT_EQ(default_taps(30, 1), List{15});
  EXPECT_THROW(default_taps(30, 0), Error);
  EXPECT_THROW(default_taps(4, 5), Error);
  EXPECT_THROW(default_taps(2, 2), Error);
}

}  // namespace
}  // namespace dflash::target
