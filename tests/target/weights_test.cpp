// Weights that do not fit: every error names the tensor; and toys whose results are known by hand.
#include <gmock/gmock.h>

#include <cmath>

#include "base/files.h"
#include "helpers.h"
#include "target/gguf_names.h"
#include "target/load.h"
#include "target/random.h"
#include "target/transformer_weights.h"

namespace dflash::target {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string build_error(const TransformerConfig& config,
                        const std::map<std::string, at::Tensor>& weights) {
  return error_of([&] { make_target(config, weights, nn::Compute::kF32); });
}

class WeightsTest : public testing::Test {
 protected:
  TransformerConfig config_ = tiny_llama_config();
  std::map<std::string, at::Tensor> weights_ = random_weights(config_, 3);
};

TEST_F(WeightsTest, MissingMisshapenAndUnknownAreAllNamed) {
  weights_.erase("layers.1.mlp.up_proj.weight");
  weights_["layers.0.self_attn.k_proj.weight"] = at::zeros({16, 31});
  weights_["layers.0.self_attn.q_norm.weight"] = at::zeros({8});
  weights_["layers.2.mlp.up_proj.weight"] = at::zeros({48, 32});
  EXPECT_THAT(build_error(config_, weights_),
              AllOf(HasSubstr("missing tensors: layers.1.mlp.up_proj.weight"),
                    HasSubstr("layers.0.self_attn.k_proj.weight: expected [16, 32], got [16, 31]"),
                    HasSubstr("layers.0.self_attn.q_norm.weight"),
                    HasSubstr("layers.2.mlp.up_proj.weight")));
}

TEST_F(WeightsTest, BiasesMustFitTheSwitches) {
  config_.attention_bias = true;
  EXPECT_THAT(build_error(config_, weights_), HasSubstr("layers.0.self_attn.q_proj.bias"));
  weights_ = random_weights(config_, 3);
  config_.attention_bias = false;
  EXPECT_THAT(build_error(config_, weights_),
              AllOf(HasSubstr("unknown tensors"), HasSubstr("self_attn.k_proj.bias")));
}

TEST_F(WeightsTest, WrongVocabulary) {
  config_.vocab_size = 97;
  EXPECT_THAT(build_error(config_, weights_),
              AllOf(HasSubstr("embed_tokens.weight: expected [97, 32], got [96, 32]"),
                    HasSubstr("lm_head.weight")));
}

// R-EX-6
TEST_F(WeightsTest, HeadMissingWithoutATie) {
  weights_.erase("lm_head.weight");
  EXPECT_THAT(build_error(config_, weights_),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
  config_.tied_embeddings = true;
  EXPECT_NO_THROW(make_target(config_, weights_, nn::Compute::kF32));
}

TEST_F(WeightsTest, TiedButStoredTwiceMustBeTheSame) {
  config_.tied_embeddings = true;
  EXPECT_THAT(build_error(config_, weights_), HasSubstr("differs from the embedding"));
  weights_["lm_head.weight"] = weights_["embed_tokens.weight"].clone();
  EXPECT_NO_THROW(make_target(config_, weights_, nn::Compute::kF32));
}

TEST_F(WeightsTest, LayerWeightsAreTheCheckpointsOwn) {
  const auto target = make_target(config_, weights_, nn::Compute::kBF16);
  for (const auto& [name, values] : target->layer_weights(1)) {
    EXPECT_EQ(values.scalar_type(), at::kFloat);
    expect_bits_equal(values, weights_.at(layer_weight_name(1, name)), name);
  }
  EXPECT_EQ(target->layer_weights(1).size(), 9U);
}

/// A copy of a golden folder that a test may damage.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("dflash_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::copy(golden("gqa"), folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string load_error() {
    return error_of([&] { load_target(folder_, {}); });
  }
  void rewrite(const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [name, tensor] : nn::load_tensors(folder_ / "model.safetensors")) {
      tensors[name] = tensor.clone();
    }
    change(tensors);
    nn::save_tensors(folder_ / "model.safetensors", tensors);
  }

  fs::path folder_;
};

TEST_F(FolderTest, DamagedFile) {
  fs::resize_file(folder_ / "model.safetensors", fs::file_size(folder_ / "model.safetensors") - 1);
  EXPECT_THAT(load_error(), HasSubstr("model.safetensors"));
}

TEST_F(FolderTest, ErrorsUseTheFilesOwnNames) {
  rewrite([](auto& tensors) { tensors["model.layers.0.extra.weight"] = at::zeros({2}); });
  EXPECT_THAT(load_error(), HasSubstr("model.layers.0.extra.weight"));
}

TEST_F(FolderTest, WeightsThatAreNoNumbersAreNamed) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    rewrite([&](auto& tensors) { tensors[name].view(-1)[3] = value; });
    EXPECT_THAT(load_error(), AllOf(HasSubstr(folder_.string()), HasSubstr(name),
                                    HasSubstr("expected finite weights")));
  }
}

TEST_F(FolderTest, PrecomputedRotaryTablesAreLeftOut) {
  rewrite([](auto& tensors) {
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({4});
  });
  EXPECT_NO_THROW(load_target(folder_, {}));
}

TEST_F(FolderTest, PrefixIsFoundFromTheEmbedding) {
  const auto plain = load_target(folder_, {});
  for (const std::string& prefix : {std::string(), std::string("model.language_model.")}) {
    SetUp();
    rewrite([&](auto& tensors) {
      std::map<std::string, at::Tensor> renamed;
      for (const auto& [name, tensor] : tensors) {
        renamed[name.starts_with("model.") ? prefix + name.substr(6) : name] = tensor;
      }
      tensors = renamed;
    });
    const auto target = load_target(folder_, {});
    EXPECT_EQ(target->fingerprint(), plain->fingerprint());
    expect_bits_equal(target->table().weight_VD, plain->table().weight_VD, "embedding");
  }
  rewrite([](auto& tensors) { tensors["other.embed_tokens.weight"] = at::zeros({2, 2}); });
  EXPECT_THAT(load_error(), HasSubstr("other.embed_tokens.weight"));
}

/// All weights zero but for what a test sets, so that blocks add nothing else.
std::map<std::string, at::Tensor> zero_weights(const TransformerConfig& config) {
  std::map<std::string, at::Tensor> weights;
  for (const WeightSpec& spec : transformer_specs(config))
    weights[spec.name] = at::zeros(spec.shape);
  return weights;
}

// R-CAP-2: embedding 0, block i adds 10^i; taps [0, 2] are (1, 111).
TEST(Toy, TapsAreAfterTheBlock) {
  TransformerConfig config = tiny_llama_config();
  config.num_layers = 3;
  config.mlp_bias = true;
  auto weights = zero_weights(config);
  weights["norm.weight"].fill_(2);
  for (int64_t i = 0; i < 3; ++i) {
    weights[layer_weight_name(i, "mlp.down_proj.bias")].fill_(std::pow(10, i));
  }
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const auto target = make_target(config, weights, compute);
    const auto state = target->new_state();
    const Hidden hidden = advance(*target, *state, {1, 2}, {0, 2, -1, 1});
    const at::Tensor taps = hidden.taps_RF.view({2, 4, config.hidden_size});
    for (const auto& [index, value] :
         {std::pair<int64_t, double>{0, 1}, {1, 111}, {2, 0}, {3, 11}}) {
      expect_bits_equal(taps.select(1, index), at::full({2, 32}, value), "tap");
    }
    expect_bits_equal(hidden.last_RD, at::full({2, 32}, 111.0), "last, before the norm");
    // eps is 1e-5 of 111^2: far below f32's resolution.
    expect_within(target->final_norm(hidden.last_RD), at::full({2, 32}, 2.0), 1e-6, "normed once");
  }
}

// R-EX-6: embedding rows (1,0) (0,1) (1,1), hidden (2,3) -> logits 2, 3, 5.
TEST(Toy, TiedHeadIsTheEmbedding) {
  TransformerConfig config = tiny_llama_config();
  config.hidden_size = 2;
  config.vocab_size = 3;
  config.tied_embeddings = true;
  auto weights = zero_weights(config);
  weights["embed_tokens.weight"] = at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F}).view({3, 2});
  const auto target = make_target(config, weights, nn::Compute::kF32);
  expect_bits_equal(target->head().logits(at::tensor({2.0F, 3.0F}).view({1, 2})),
                    at::tensor({2.0F, 3.0F, 5.0F}).view({1, 3}), "logits");
  EXPECT_EQ(target->head().num_ids, 3);
}

TEST(HeadRows, InterleavedToHalfSplit) {
  // Two heads of four rows: 0a 0b 1a 1b -> 0a 1a 0b 1b.
  const at::Tensor rows = at::arange(8, at::kFloat);
  expect_bits_equal(restore_head_rows(rows, 2),
                    at::tensor({0.0F, 2.0F, 1.0F, 3.0F, 4.0F, 6.0F, 5.0F, 7.0F}), "vector");
  const at::Tensor matrix = rows.view({8, 1}).expand({8, 3});
  expect_bits_equal(restore_head_rows(matrix, 2).select(1, 2), restore_head_rows(rows, 2),
                    "matrix");
}

}  // namespace
}  // namespace dflash::target
