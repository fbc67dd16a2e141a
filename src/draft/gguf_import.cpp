#include <algorithm>
#include <set>

#include "base/error.h"
#include "draft/folder_tensors.h"
#include "draft/gguf_drafter.h"
#include "io/gguf.h"
#include "nn/finite.h"
#include "nn/tensor_io.h"

namespace dflash::draft {
namespace {

using io::GgufFile;

struct Feature {
  const char* key;
  const char* name;
};

// Keys that change the maths; zero and one are what llama.cpp does without them.
constexpr Feature kScales[] = {{"logit_scale", "a logit multiplier"},
                               {"embedding_scale", "an embedding scale"},
                               {"attention.value_scale", "a value scale"}};
constexpr Feature kFeatures[] = {{"final_logit_softcapping", "logit soft-capping"},
                                 {"attention.scale", "an own attention scale"},
                                 {"conv_kernel_size", "DFlash2"},
                                 {"conv_group_size", "DFlash2"},
                                 {"selector_rank", "DFlash2"},
                                 {"selector_top_k", "DFlash2"},
                                 {"hyper_connection.count", "hyper-connections"},
                                 {"expert_count", "a mixture of experts"}};
constexpr const char* kKnown[] = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "block_size", "target_layers", "hidden_activation", "decoder_arch",
    // only a Markov head makes llama.cpp look at these two
    "sample_from_anchor", "has_confidence_head", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "attention.sliding_window", "attention.sliding_window_pattern", "attention.causal",
    "rope.freq_base", "rope.dimension_count", "rope.dimension_sections", "rope.scaling.type"};

std::string key(const char* name) {
  return std::string("dflash.") + name;
}

[[noreturn]] void not_implemented(const GgufFile& file, const std::string& name,
                                  const std::string& feature) {
  fail("{}: {}: {} is not implemented\n  hint: this program runs plain DFlash drafters",
       file.path().string(), name, feature);
}

void check_architecture(const GgufFile& file) {
  const std::string name = file.string("general.architecture");
  if (name == "dflash") return;
  const bool fork = name.find("dflash") != std::string::npos;
  fail("{}: general.architecture: expected dflash, got {}{}", file.path().string(), name,
       fork ? "\n  hint: a fork's own form; convert the original drafter with llama.cpp or export"
            : "\n  hint: a target is given by --target");
}

void refuse_features(const GgufFile& file) {
  std::set<std::string> known;
  for (const char* name : kKnown) known.insert(key(name));
  for (const Feature& scale : kScales) {
    known.insert(key(scale.key));
    const double value = file.number(key(scale.key), 0.0);
    if (value != 0.0 && value != 1.0) not_implemented(file, key(scale.key), scale.name);
  }
  for (const Feature& feature : kFeatures) {
    known.insert(key(feature.key));
    if (file.number(key(feature.key), 0.0) != 0.0) {
      not_implemented(file, key(feature.key), feature.name);
    }
  }
  for (const std::string& found : file.keys("dflash.")) {
    if (!known.contains(found)) not_implemented(file, found, "this key");
  }
  const auto text = [&](const char* name, const char* fallback) {
    return file.has(key(name)) ? file.string(key(name)) : std::string(fallback);
  };
  if (text("hidden_activation", "silu") != "silu") {
    not_implemented(file, key("hidden_activation"), text("hidden_activation", ""));
  }
  if (text("rope.scaling.type", "none") != "none") {
    not_implemented(file, key("rope.scaling.type"), text("rope.scaling.type", "") + " scaling");
  }
  if (file.has(key("decoder_arch"))) {
    not_implemented(file, key("decoder_arch"), "the decoder " + text("decoder_arch", ""));
  }
}

void expect_equal(const GgufFile& file, const char* name, int64_t got, int64_t expected,
                  const char* feature) {
  if (got != expected) not_implemented(file, key(name), fmt::format("{} ({})", feature, got));
}

void read_rope(const GgufFile& file, DraftSpec& spec) {
  spec.rope.theta = file.number(key("rope.freq_base"), 10000.0);  // llama.cpp's own default
  expect_equal(file, "rope.dimension_count",
               file.integer(key("rope.dimension_count"), spec.head_dim), spec.head_dim,
               "a partial rotary embedding");
  if (file.has(key("rope.dimension_sections"))) {
    const auto sections = file.integers(key("rope.dimension_sections"));
    // All of the rotation by the one position that a drafter has.
    if (sections.empty() || sections[0] != spec.head_dim / 2) {
      not_implemented(file, key("rope.dimension_sections"), "a rotary embedding in sections");
    }
  }
  if (const io::GgufTensor* factors = file.find("rope_freqs.weight")) {
    if (factors->numel() != spec.head_dim / 2) {
      fail("{}: rope_freqs.weight: expected {} factors, got {}", file.path().string(),
           spec.head_dim / 2, factors->numel());
    }
    std::vector<float> values(static_cast<size_t>(factors->numel()));
    factors->widen(values);
    spec.rope.frequency_factors.assign(values.begin(), values.end());
  }
}

void read_rules(const GgufFile& file, DraftSpec& spec) {
  const int64_t window = file.integer(key("attention.sliding_window"), 0);
  const auto in_block = file.boolean(key("attention.causal"), false)
                            ? block::InBlock::kCausal
                            : block::InBlock::kBidirectional;
  spec.rule.layers.assign(static_cast<size_t>(spec.num_layers),
                          {.window = 0, .bound = block::Bound::kQuery, .in_block = in_block});
  if (window <= 0) return;
  if (window < spec.rule.block_size) {  // theirs does not end ahead of the query
    not_implemented(file, key("attention.sliding_window"), "a window smaller than a block");
  }
  const std::string name = key("attention.sliding_window_pattern");
  if (!file.is_array(name) || static_cast<int64_t>(file.values(name).size()) != spec.num_layers) {
    fail("{}: {}: expected a list of {} booleans", file.path().string(), name, spec.num_layers);
  }
  for (size_t l = 0; l < spec.rule.layers.size(); ++l) {
    const bool* sliding = std::get_if<bool>(&file.values(name)[l]);
    if (!sliding) fail("{}: {}: expected booleans", file.path().string(), name);
    if (*sliding) spec.rule.layers[l].window = window;
  }
}

int64_t vocabulary_size(const GgufFile& file) {
  if (file.has("tokenizer.ggml.tokens")) {
    return static_cast<int64_t>(file.values("tokenizer.ggml.tokens").size());
  }
  return file.integer(key("vocab_size"));
}

DraftSpec read_spec(const GgufFile& file) {
  check_architecture(file);
  refuse_features(file);
  DraftSpec spec;
  spec.num_layers = file.integer(key("block_count"));
  if (spec.num_layers < 1 || spec.num_layers > 256) {
    fail("{}: {}: expected 1 to 256, got {}", file.path().string(), key("block_count"),
         spec.num_layers);
  }
  spec.hidden_size = spec.target_hidden_size = file.integer(key("embedding_length"));
  spec.intermediate_size = file.integer(key("feed_forward_length"));
  spec.num_heads = file.integer(key("attention.head_count"));
  spec.num_kv_heads = file.integer(key("attention.head_count_kv"), spec.num_heads);
  spec.head_dim = file.has(key("attention.key_length"))
                      ? file.integer(key("attention.key_length"))
                      : spec.hidden_size / std::max<int64_t>(1, spec.num_heads);
  expect_equal(file, "attention.value_length",
               file.integer(key("attention.value_length"), spec.head_dim), spec.head_dim,
               "another size of values than of keys");
  spec.rms_norm_eps = file.number(key("attention.layer_norm_rms_epsilon"));
  spec.max_positions = file.integer(key("context_length"), 0);
  spec.vocab_size = vocabulary_size(file);
  for (const int64_t id : file.integers(key("target_layers"))) spec.taps.push_back(id - 1);
  spec.target_num_layers = file.integer("dflash_cpp.target_num_layers", 0);
  for (auto [name, text] : {std::pair{"dflash_cpp.target_fingerprint", &spec.target_fingerprint},
                            {"dflash_cpp.tokenizer_fingerprint", &spec.tokenizer_fingerprint}}) {
    if (file.has(name)) *text = file.string(name);
  }
  spec.rule.block_size = file.integer(key("block_size"), 16);  // llama.cpp's own default
  spec.rule.mask_id = file.integer("tokenizer.ggml.mask_token_id");
  if (spec.rule.block_size < 2 || spec.rule.block_size > 1024) {
    fail("{}: {}: expected 2 to 1024, got {}", file.path().string(), key("block_size"),
         spec.rule.block_size);
  }
  read_rope(file, spec);
  read_rules(file, spec);
  if (const io::GgufTensor* ids = file.find("d2t")) spec.draft_ids = ids->integers();
  check_spec(spec);
  return spec;
}

}  // namespace

DraftSpec read_gguf_drafter(const std::filesystem::path& path) {
  return read_spec(*GgufFile::open(path));
}

std::shared_ptr<Drafter> load_gguf_drafter(const std::filesystem::path& path, nn::Compute compute) {
  const auto file = GgufFile::open(path);
  const DraftSpec spec = read_spec(*file);
  std::map<std::string, at::Tensor> weights;
  OwnTables tables;
  for (const io::GgufTensor& tensor : file->tensors()) {
    const std::string name = name_from_gguf(tensor.name);
    refuse_foreign(path.string(), tensor.name);
    if (name == "draft_ids" || name == "rope_freqs.weight") continue;
    at::Tensor values = nn::to_tensor(tensor);
    nn::expect_finite(values, path.string(), tensor.name);
    if (name == "embed_tokens.weight") {
      tables.embed_VD = std::move(values);
    } else if (name == "lm_head.weight") {
      tables.head_VD = std::move(values);
    } else {
      weights.emplace(name, std::move(values));
    }
  }
  // As llama.cpp does: a table without a head is tied.
  if (!tables.head_VD.defined()) tables.head_VD = tables.embed_VD;
  auto drafter = Drafter::from_weights(spec, compute, weights);
  drafter->set_own_tables(std::move(tables));
  drafter->pack();
  return drafter;
}

}  // namespace dflash::draft
