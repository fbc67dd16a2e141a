#include <algorithm>

#include "base/error.h"
#include "draft/gguf_drafter.h"
#include "nn/rope.h"
#include "nn/shapes.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using io::GgufEntry;

uint32_t count(int64_t value) {
  return static_cast<uint32_t>(value);
}

// llama3's scaling as llama.cpp keeps it: one divisor of each frequency.
std::vector<float> frequency_factors(const DraftSpec& spec) {
  if (spec.rope.scaling == "default" && spec.rope.frequency_factors.empty()) return {};
  nn::RopeConfig plain;
  plain.theta = spec.rope.theta;
  const auto base = nn::Rope(plain, spec.head_dim).inverse_frequencies();
  const auto scaled = nn::Rope(spec.rope, spec.head_dim).inverse_frequencies();
  std::vector<float> factors;
  for (size_t f = 0; f < base.size(); ++f) {
    factors.push_back(static_cast<float>(base[f] / scaled[f]));
  }
  return factors;
}

void add_rules(const DraftSpec& spec, std::vector<GgufEntry>& entries) {
  int64_t window = 0;
  std::vector<bool> sliding;
  for (const block::LayerRule& rule : spec.rule.layers) {
    window = std::max(window, rule.window);
    sliding.push_back(rule.window > 0);
  }
  entries.push_back(
      {"dflash.attention.causal", spec.rule.layers.at(0).in_block == InBlock::kCausal});
  if (window == 0) return;
  entries.push_back({"dflash.attention.sliding_window", count(window)});
  entries.push_back({"dflash.attention.sliding_window_pattern", sliding});
}

std::vector<GgufEntry> make_entries(const DraftSpec& spec, nn::Compute storage,
                                    const GgufDrafterParts& parts) {
  std::vector<int32_t> layers;
  for (const int64_t tap : spec.taps) layers.push_back(static_cast<int32_t>(tap + 1));
  const int64_t positions = spec.max_positions > 0 ? spec.max_positions : parts.max_positions;
  std::vector<GgufEntry> entries = {
      {"general.architecture", std::string("dflash")},
      {"general.type", std::string("model")},
      {"general.file_type", uint32_t{storage == nn::Compute::kF32 ? 0U : 32U}},
      {"dflash.block_count", count(spec.num_layers)},
      {"dflash.context_length", count(positions)},
      {"dflash.embedding_length", count(spec.hidden_size)},
      {"dflash.feed_forward_length", count(spec.intermediate_size)},
      {"dflash.attention.head_count", count(spec.num_heads)},
      {"dflash.attention.head_count_kv", count(spec.num_kv_heads)},
      {"dflash.attention.key_length", count(spec.head_dim)},
      {"dflash.attention.value_length", count(spec.head_dim)},
      {"dflash.attention.layer_norm_rms_epsilon", static_cast<float>(spec.rms_norm_eps)},
      {"dflash.rope.freq_base", static_cast<float>(spec.rope.theta)},
      {"dflash.block_size", count(spec.rule.block_size)},
      {"dflash.target_layers", layers},
      {"dflash_cpp.target_num_layers", count(spec.target_num_layers)},
      {"dflash_cpp.target_fingerprint", spec.target_fingerprint},
      {"dflash_cpp.tokenizer_fingerprint", spec.tokenizer_fingerprint}};
  add_rules(spec, entries);
  for (const GgufEntry& entry : parts.tokenizer) {
    if (entry.key != "tokenizer.ggml.mask_token_id") entries.push_back(entry);
  }
  entries.push_back({"tokenizer.ggml.mask_token_id", count(spec.rule.mask_id)});
  return entries;
}

// Tensors kept alive beside the views that the writer wants. Matrices in the given type, vectors in
// f32, as llama.cpp's kernels need them.
class TensorList {
 public:
  explicit TensorList(nn::Compute storage) : storage_(storage) {}

  void add(const std::string& name, const at::Tensor& tensor) {
    const bool narrow = tensor.dim() > 1 && storage_ == nn::Compute::kBF16;
    add_as(name, tensor.detach().to(narrow ? at::kBFloat16 : at::kFloat),
           narrow ? io::GgufType::kBF16 : io::GgufType::kF32);
  }
  void add_ids(const std::string& name, const std::vector<int64_t>& ids) {
    add_as(name, at::tensor(ids, at::kLong), io::GgufType::kI64);
  }
  const std::vector<io::GgufTensor>& views() const { return views_; }

 private:
  void add_as(const std::string& name, const at::Tensor& tensor, io::GgufType type) {
    kept_.push_back(tensor.contiguous());
    const at::Tensor& held = kept_.back();
    views_.push_back({name,
                      type,
                      held.sizes().vec(),
                      {static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes()}});
  }

  nn::Compute storage_;
  std::vector<at::Tensor> kept_;
  std::vector<io::GgufTensor> views_;
};

void check_vocabulary(const DraftSpec& spec, const GgufDrafterParts& parts) {
  for (const GgufEntry& entry : parts.tokenizer) {
    if (entry.key != "tokenizer.ggml.tokens") continue;
    const auto size = static_cast<int64_t>(std::get<std::vector<std::string>>(entry.value).size());
    if (size == spec.vocab_size) return;
    fail("GGUF export: vocabulary: expected the drafter's {} tokens, got {} of the target",
         spec.vocab_size, size);
  }
  fail("GGUF export: expected the target's vocabulary, got none\n  hint: give --target");
}

}  // namespace

std::vector<std::string> gguf_limits(const Drafter& drafter) {
  const DraftSpec& spec = drafter.spec();
  std::vector<std::string> limits;
  const auto add = [&](bool applies, const char* what) {
    if (applies) limits.emplace_back(what);
  };
  const auto any = [&](auto test) {
    return std::any_of(spec.rule.layers.begin(), spec.rule.layers.end(), test);
  };
  add(spec.rule.slot_shift == 1, "anchor-first slots (llama.cpp has them for DSpark only)");
  add(spec.attention_bias, "biases in the attention");
  add(spec.hidden_size != spec.target_hidden_size, "a hidden size other than the target's");
  add(any([](const auto& rule) { return rule.window > 0 && rule.bound == Bound::kAnchor; }),
      "a window counted from the anchor (llama.cpp counts from the query)");
  add(any([&](const auto& rule) { return rule.in_block != spec.rule.layers[0].in_block; }),
      "causal and bidirectional layers in one drafter (llama.cpp has one switch)");
  add(any([&](const auto& rule) { return rule.window > 0 && rule.window < spec.rule.block_size; }),
      "a window smaller than a block (llama.cpp lets it end behind the query only)");
  return limits;
}

void save_gguf_drafter(const Drafter& drafter, const std::filesystem::path& path,
                       nn::Compute storage, const GgufDrafterParts& parts) {
  const c10::NoGradGuard no_grad;
  const DraftSpec& spec = drafter.spec();
  check_vocabulary(spec, parts);
  TensorList tensors(storage);
  for (const auto& [name, tensor] : drafter.parameters()) tensors.add(gguf_name(name), tensor);
  const at::Tensor& embed_VD = drafter.own_tables().embed_VD;
  if (embed_VD.defined()) tensors.add("token_embd.weight", embed_VD);
  if (embed_VD.defined() || !spec.draft_ids.empty() || drafter.own_tables().head_VD.defined()) {
    const auto rows =
        spec.draft_ids.empty() ? spec.vocab_size : static_cast<int64_t>(spec.draft_ids.size());
    nn::expect_shape(parts.head_VD, {rows, spec.hidden_size}, "head of the draft vocabulary");
    tensors.add("output.weight", parts.head_VD);
  }
  if (!spec.draft_ids.empty()) tensors.add_ids("d2t", spec.draft_ids);
  const std::vector<float> factors = frequency_factors(spec);
  if (!factors.empty()) tensors.add("rope_freqs.weight", at::tensor(factors, at::kFloat));
  io::write_gguf(path, make_entries(spec, storage, parts), tensors.views());
}

}  // namespace dflash::draft
