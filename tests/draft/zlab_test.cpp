// z-lab's folder in and out: bit-equal after a round trip (R-EX-11), names of tensors, damaged and
// foreign files.
#include "draft/zlab.h"

#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "draft/fixtures.h"
#include "draft/formats.h"
#include "io/safetensors.h"
#include "nn/tensor_io.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;

std::string refusal(const Json& config) {
  try {
    parse_zlab_config(config, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class ZlabFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("zlab_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  void rewrite_tensors(const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
    std::map<std::string, at::Tensor> tensors;
    for (auto& [name, tensor] : nn::load_tensors(folder / "model.safetensors")) {
      tensors[name] = tensor.clone();
    }
    change(tensors);
    nn::save_tensors(folder / "model.safetensors", tensors);
  }
  std::string load_error() const {
    try {
      load_drafter(folder, nn::Compute::kF32);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path folder;
};

DraftSpec full_spec() {
  DraftSpec spec = small_spec({LayerRule{}, {3, Bound::kAnchor, InBlock::kCausal}});
  spec.attention_bias = true;
  spec.draft_ids = {4, 0, 17, 49};
  spec.target_fingerprint = "t-1";
  spec.tokenizer_fingerprint = "k-2";
  spec.max_positions = 8192;
  return spec;
}

at::Tensor fixed_block(const Drafter& drafter) {
  const auto context = drafter.new_context();
  SequenceContext* pointer = context.get();
  const int64_t rows = 7;
  drafter.append({&pointer, 1}, {&rows, 1}, random_tensor({rows, 40}, 3), at::arange(rows));
  const block::DecodingAnchor anchor{5, rows};
  const block::Blocks b = block::decoding_blocks(drafter.spec().rule, {&anchor, 1});
  return drafter.forward({&pointer, 1}, b, random_tensor({1, 4, 24}, 4));
}

TEST_F(ZlabFolder, SaveAndLoadIsBitEqual) {  // R-EX-11
  for (const nn::Compute storage : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const auto first = small_drafter(full_spec(), nn::Compute::kF32);
    if (storage == nn::Compute::kBF16) {  // what is written is what the second one computes with
      for (const auto& [name, tensor] : first->parameters()) {
        tensor.copy_(tensor.to(at::kBFloat16));
      }
      first->pack();
    }
    save_zlab(*first, folder, storage);
    const auto second = load_zlab(folder, nn::Compute::kF32);
    ASSERT_EQ(second->parameters().size(), first->parameters().size());
    for (const auto& [name, tensor] : first->parameters()) {
      EXPECT_TRUE(second->parameters().at(name).equal(tensor)) << name;
    }
    EXPECT_TRUE(fixed_block(*second).equal(fixed_block(*first)));
    EXPECT_EQ(zlab_config(second->spec(), storage), zlab_config(first->spec(), storage));
    EXPECT_EQ(second->spec().draft_ids, first->spec().draft_ids);
    EXPECT_EQ(second->spec().target_hidden_size, 20);

    const Json config = read_json(folder / "config.json");
    EXPECT_EQ(config["dtype"], storage == nn::Compute::kF32 ? "float32" : "bfloat16");
    const auto file = io::Checkpoint::open(folder);
    EXPECT_EQ(file->tensors().size(), 2 * 15 + 3 + 1);
    for (const io::TensorView& view : file->tensors()) {
      const io::Dtype dtype = storage == nn::Compute::kF32 ? io::Dtype::kF32 : io::Dtype::kBF16;
      EXPECT_EQ(view.dtype, view.name == "draft_ids" ? io::Dtype::kI64 : dtype) << view.name;
    }
  }
}

TEST_F(ZlabFolder, EveryRuleSurvives) {
  for (const Bound bound : {Bound::kQuery, Bound::kAnchor}) {
    for (const InBlock sliding : {InBlock::kBidirectional, InBlock::kCausal}) {
      for (const InBlock full : {InBlock::kBidirectional, InBlock::kCausal}) {
        const DraftSpec spec =
            small_spec({{0, Bound::kQuery, full}, {5, bound, sliding}, {5, bound, sliding}});
        const DraftSpec back = parse_zlab_config(zlab_config(spec, nn::Compute::kF32), "x");
        for (size_t l = 0; l < 3; ++l) {
          EXPECT_EQ(describe(back.rule.layers[l]), describe(spec.rule.layers[l]));
        }
        // Programs that do not know our keys see the same wherever the public keys can say it.
        Json config = zlab_config(spec, nn::Compute::kF32);
        config["dflash_cpp"].erase("layers");
        const DraftSpec theirs = parse_zlab_config(config, "x");
        for (size_t l = 0; l < 3; ++l) {
          EXPECT_EQ(theirs.rule.layers[l].window, spec.rule.layers[l].window);
          if (full == InBlock::kBidirectional || sliding == InBlock::kCausal) {
            EXPECT_EQ(theirs.rule.layers[l].in_block, spec.rule.layers[l].in_block);
          }
        }
      }
    }
  }
  Json config = zlab_config(full_spec(), nn::Compute::kF32);
  config["sliding_window"] = 4;
  EXPECT_NE(refusal(config).find("one window"), std::string::npos);
  config = zlab_config(full_spec(), nn::Compute::kF32);
  config["dflash_cpp"]["format"] = 2;
  EXPECT_NE(refusal(config).find("dflash_cpp.format"), std::string::npos);
}

TEST_F(ZlabFolder, PrefixAndSpellingsOfNames) {
  const auto first = small_drafter(small_spec({LayerRule{}}), nn::Compute::kF32);
  save_zlab(*first, folder, nn::Compute::kF32);
  rewrite_tensors([](std::map<std::string, at::Tensor>& tensors) {
    std::map<std::string, at::Tensor> renamed;
    for (const auto& [name, tensor] : tensors) renamed["model." + name] = tensor;
    tensors = renamed;
  });
  EXPECT_TRUE(fixed_block(*load_zlab(folder, nn::Compute::kF32)).equal(fixed_block(*first)));
  rewrite_tensors([](std::map<std::string, at::Tensor>& tensors) {
    std::map<std::string, at::Tensor> renamed;
    for (const auto& [name, tensor] : tensors) {
      const std::string bare = name.substr(6);
      renamed[bare.starts_with("layers.0.") ? "midlayer." + bare.substr(9) : bare] = tensor;
    }
    tensors = renamed;
  });
  EXPECT_TRUE(fixed_block(*load_zlab(folder, nn::Compute::kF32)).equal(fixed_block(*first)));
  rewrite_tensors([](auto& tensors) { tensors["model.fc.weight"] = tensors["fc.weight"]; });
  EXPECT_NE(load_error().find("two spellings"), std::string::npos);
}

TEST_F(ZlabFolder, ForeignMissingAndExtraTensors) {
  const auto first = small_drafter(full_spec(), nn::Compute::kF32);
  const auto expect_error = [&](const std::string& name, const at::Tensor& tensor,
                                const std::string& part) {
    save_zlab(*first, folder, nn::Compute::kF32);
    rewrite_tensors([&](auto& tensors) {
      if (tensor.defined()) {
        tensors[name] = tensor;
      } else {
        tensors.erase(name);
      }
    });
    EXPECT_NE(load_error().find(part), std::string::npos) << load_error();
    EXPECT_NE(load_error().find(folder.string()), std::string::npos) << load_error();
  };
  expect_error("embed_tokens.weight", at::ones({49, 24}), "embed_tokens.weight");
  expect_error("lm_head.weight", at::full({4, 24}, NAN), "lm_head.weight");
  expect_error("norm.weight", at::full({24}, INFINITY), "expected finite weights");
  expect_error("d2t", at::ones({4}, at::kLong), "d2t");
  expect_error("layers.0.self_attn.sinks", at::ones({4}), "sink");
  expect_error("layers.0.extra.weight", at::ones({4}), "layers.0.extra.weight");
  expect_error("layers.0.self_attn.q_norm.weight", at::Tensor(),
               "layers.0.self_attn.q_norm.weight");
  expect_error("norm.weight", at::ones({24}, at::kInt), "norm.weight");
  expect_error("draft_ids", at::Tensor(), "draft_ids");
  expect_error("draft_ids", at::ones({3}, at::kLong), "draft_ids");
  expect_error("draft_ids", at::ones({4}, at::kLong), "twice");
  expect_error("fc.weight", at::ones({24, 41}), "fc.weight");
}

TEST_F(ZlabFolder, LoadedWeightsCanBeTrainedInPlace) {
  save_zlab(*small_drafter(full_spec(), nn::Compute::kF32), folder, nn::Compute::kF32);
  const auto drafter = load_zlab(folder, nn::Compute::kF32);
  for (const auto& [name, tensor] : drafter->parameters()) tensor.add_(1.0);
}

}  // namespace
}  // namespace dflash::draft
