// config.json of z-lab's format -> DraftSpec. Every published spelling of MODELS.md 4.3; every
// feature that would change the maths and is not implemented is refused by name.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/taps.h"
#include "draft/deepspec.h"
#include "draft/zlab.h"
#include "draft/zlab_keys.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;

constexpr int64_t kDefaultMaxWindowLayers = 28;  // of the class z-lab parses its configs with

// Anchor-first is told by a key, or by the name of the class that knows nothing else.
bool is_deepspec(const ZlabKeys& keys) {
  return is_deepspec_config(keys.root());
}

void check_family(const ZlabKeys& keys) {
  const auto found = keys.root().find("architectures");
  const bool plain = found == keys.root().end() || *found == Json::array({"DFlashDraftModel"}) ||
                     is_deepspec(keys);
  if (!plain) keys.refuse("architectures", "[\"DFlashDraftModel\"]", *found);
  const std::set<std::string> known = {"qwen3", "dflash", "gpt_oss"};
  const std::string model = keys.text("model_type").value_or("qwen3");
  if (!known.contains(model)) keys.refuse("model_type", "qwen3, dflash or gpt_oss", model);
  const std::string act = keys.text("hidden_act").value_or("silu");
  if (act != "silu") keys.refuse("hidden_act", "silu", act);
}

struct Feature {
  const char* key;
  const char* name;
};

void refuse_features(const ZlabKeys& keys) {
  for (const Feature& f : {Feature{"attention_sink_bias", "an attention sink"},
                           {"enable_confidence_head", "a confidence head (DSpark)"},
                           {"confidence_head_with_markov", "a confidence head (DSpark)"},
                           {"shift_label", "Domino's shifted labels"},
                           {"attn_output_gate", "gated attention"}}) {
    if (keys.flag(f.key, false)) keys.not_implemented(f.key, f.name);
  }
  for (const Feature& f : {Feature{"attention_value_scale", "a value scale"},
                           {"input_embedding_scale", "an embedding scale"},
                           {"output_multiplier", "a logit multiplier"},
                           {"partial_rotary_factor", "a partial rotary embedding"}}) {
    if (keys.number(f.key).value_or(1.0) != 1.0) keys.not_implemented(f.key, f.name);
  }
  for (const Feature& f : {Feature{"final_logit_softcapping", "logit soft-capping"},
                           {"markov_rank", "a Markov head (DSpark)"},
                           {"emb_dim", "Domino's head"},
                           {"gru_hidden_dim", "Domino's head"},
                           {"pure_draft_prefix_len", "Domino's draft prefix"}}) {
    if (keys.number(f.key).value_or(0.0) != 0.0) keys.not_implemented(f.key, f.name);
  }
  if (!keys.flag("rope_is_neox_style", true)) {
    keys.not_implemented("rope_is_neox_style", "an interleaved rotary embedding");
  }
  const std::string projector = keys.text("projector_type").value_or("dflash");
  if (projector != "dflash") keys.not_implemented("projector_type", projector);
}

// A key that this program does not know may change the maths, so inside the drafter's own section
// it is an error; the root is full of keys of other programs.
void refuse_unknown_keys(const ZlabKeys& keys) {
  const std::set<std::string> known = {"block_size",
                                       "target_layer_ids",
                                       "mask_token_id",
                                       "causal",
                                       "use_swa",
                                       "swa_window_size",
                                       "attention_sink_bias",
                                       "attention_value_scale",
                                       "input_embedding_scale",
                                       "output_multiplier",
                                       "final_logit_softcapping",
                                       "projector_type",
                                       "markov_rank",
                                       "markov_head_type",
                                       "enable_confidence_head",
                                       "confidence_head_with_markov",
                                       "emb_dim",
                                       "gru_hidden_dim",
                                       "pure_draft_prefix_len",
                                       "shift_label",
                                       "sample_from_anchor",
                                       "num_anchors",
                                       "num_target_layers",
                                       "attn_output_gate",
                                       "partial_rotary_factor"};
  for (const auto& [key, value] : keys.nested().items()) {
    if (known.contains(key)) continue;
    if (key.starts_with("conv_") || key.starts_with("selector_")) {
      keys.not_implemented("dflash_config." + key, "DFlash2");
    }
    keys.refuse("dflash_config", "known keys (" + fmt::format("{}", fmt::join(known, ", ")) + ")",
                key);
  }
}

void read_sizes(const ZlabKeys& keys, DraftSpec& spec) {
  spec.num_layers = keys.required_integer("num_hidden_layers");
  spec.hidden_size = keys.required_integer("hidden_size");
  spec.intermediate_size = keys.required_integer("intermediate_size");
  spec.num_heads = keys.required_integer("num_attention_heads");
  spec.num_kv_heads = keys.integer("num_key_value_heads").value_or(spec.num_heads);
  spec.vocab_size = keys.required_integer("vocab_size");
  spec.max_positions = keys.integer("max_position_embeddings").value_or(0);
  spec.rms_norm_eps = keys.number("rms_norm_eps").value_or(1e-6);
  spec.attention_bias = keys.flag("attention_bias", false);
  const std::optional<int64_t> head_dim = keys.integer("head_dim");
  if (!head_dim && (spec.num_heads < 1 || spec.hidden_size % spec.num_heads != 0)) {
    fail(
        "{}: head_dim: expected a value, since hidden_size {} is no multiple of {} heads, got none",
        keys.name(), spec.hidden_size, spec.num_heads);
  }
  spec.head_dim = head_dim ? *head_dim : spec.hidden_size / spec.num_heads;
}

// One rope section: the one at the top, or those of the layer types in use, which must be equal.
Json rope_section(const ZlabKeys& keys, const std::string& key) {
  const Json* section = keys.find(key);
  if (!section) return Json::object();
  if (!section->is_object()) keys.refuse(key, "an object", *section);
  Json chosen;
  for (const char* type : {"full_attention", "sliding_attention"}) {
    if (!section->contains(type)) continue;
    const Json& own = section->at(type);
    if (!own.is_object()) keys.refuse(key + "." + type, "an object", own);
    if (!chosen.is_null() && chosen != own) {
      keys.not_implemented(key, "one rotary embedding a layer type");
    }
    chosen = own;
  }
  return chosen.is_null() ? *section : chosen;
}

void read_rope(const ZlabKeys& keys, DraftSpec& spec) {
  const Json parameters = rope_section(keys, "rope_parameters");
  const Json scaling = rope_section(keys, "rope_scaling");
  struct Place {
    const char* name;
    const Json& object;
  };
  const Place places[] = {
      {"rope_theta", keys.root()}, {"rope_parameters", parameters}, {"rope_scaling", scaling}};
  std::optional<double> theta;
  const char* first = nullptr;
  for (const Place& place : places) {
    const auto found = place.object.find("rope_theta");
    if (found == place.object.end() || found->is_null()) continue;
    const double value = as_number(keys, place.name, *found);
    if (theta && *theta != value) {
      fail("{}: rope_theta: expected one value, got {} ({}) and {} ({})", keys.name(), *theta,
           first, value, place.name);
    }
    theta = value;
    first = place.name;
  }
  if (!theta) {
    fail("{}: rope_theta: expected it at the top, in rope_parameters or in rope_scaling, got none",
         keys.name());
  }
  spec.rope.theta = *theta;
  for (const Json* section : {&parameters, &scaling}) {
    const ZlabKeys rope(*section, keys.name());
    const auto type = rope.text("rope_type") ? rope.text("rope_type") : rope.text("type");
    if (rope.number("partial_rotary_factor").value_or(1.0) != 1.0) {
      keys.not_implemented("partial_rotary_factor", "a partial rotary embedding");
    }
    if (!type || *type == "default") continue;
    if (*type != "llama3") keys.not_implemented("rope_type", *type + " rope scaling");
    spec.rope.scaling = *type;
    const auto need = [&](const char* key) {
      const std::optional<double> value = rope.number(key);
      if (!value) fail("{}: rope scaling: {}: expected a number, got none", keys.name(), key);
      return *value;
    };
    spec.rope.factor = need("factor");
    spec.rope.low_freq_factor = need("low_freq_factor");
    spec.rope.high_freq_factor = need("high_freq_factor");
    spec.rope.original_max_positions = need("original_max_position_embeddings");
  }
}

// Which layers are sliding, by their names or by the rule of max_window_layers.
std::vector<bool> sliding_layers(const ZlabKeys& keys, int64_t num_layers, bool has_window) {
  std::vector<bool> sliding(static_cast<size_t>(num_layers), false);
  const Json* types = keys.find("layer_types");
  if (!types) {
    if (keys.find("full_attention_interval")) {
      keys.not_implemented("full_attention_interval", "linear attention in a drafter");
    }
    const int64_t first = keys.integer("max_window_layers").value_or(kDefaultMaxWindowLayers);
    for (int64_t l = 0; l < num_layers; ++l) sliding[l] = has_window && l >= first;
    return sliding;
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != num_layers) {
    keys.refuse("layer_types", fmt::format("a list of {} layer types", num_layers), *types);
  }
  for (int64_t l = 0; l < num_layers; ++l) {
    const Json& type = types->at(l);
    if (type != "full_attention" && type != "sliding_attention") {
      keys.refuse("layer_types", "full_attention or sliding_attention", type);
    }
    sliding[l] = type == "sliding_attention";
  }
  return sliding;
}

/// is_causal, or causal as some write it; nullopt: neither is there.
std::optional<bool> declared_causal(const ZlabKeys& keys) {
  std::optional<bool> causal;
  for (const char* key : {"is_causal", "causal"}) {
    if (!keys.find(key)) continue;
    const bool value = keys.flag(key, false);
    if (causal && *causal != value) {
      fail("{}: expected one answer, got is_causal {} and causal {}", keys.name(), *causal, value);
    }
    causal = value;
  }
  return causal;
}

std::vector<LayerRule> public_layer_rules(const ZlabKeys& keys, int64_t num_layers) {
  const std::optional<bool> causal = declared_causal(keys);
  const auto in_block = [&](bool sliding) {
    return causal.value_or(sliding) ? InBlock::kCausal : InBlock::kBidirectional;
  };
  std::vector<LayerRule> rules;
  if (keys.flag("use_swa", false)) {
    // Every layer is a window over an encoder-like block; causal only when said so.
    const std::optional<int64_t> swa = keys.integer("swa_window_size");
    const int64_t window = swa ? *swa : keys.required_integer("sliding_window");
    const LayerRule rule{window, Bound::kQuery, in_block(false)};
    return std::vector<LayerRule>(static_cast<size_t>(num_layers), rule);
  }
  // The class that z-lab parses its configs with drops the window unless use_sliding_window is on;
  // a sliding layer then sees the whole context, and its block stays causal.
  const bool gate = keys.flag("use_sliding_window", false);
  const int64_t window = gate ? keys.integer("sliding_window").value_or(0) : 0;
  const std::vector<bool> sliding = sliding_layers(keys, num_layers, window > 0);
  if (window == 0 && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    log_warning(
        "{}: layers are called sliding but use_sliding_window is off or sliding_window is "
        "absent: they see the whole context",
        keys.name());
  }
  for (const bool slides : sliding) {
    rules.push_back({slides ? window : 0, Bound::kQuery, in_block(slides)});
  }
  return rules;
}

LayerRule own_layer_rule(const ZlabKeys& keys, const Json& layer) {
  if (!layer.is_object()) keys.refuse("dflash_cpp.layers", "objects", layer);
  const ZlabKeys own(layer, keys.name());
  const std::string bound = own.text("bound").value_or("query");
  const std::string in_block = own.text("in_block").value_or("");
  if (bound != "query" && bound != "anchor") {
    keys.refuse("dflash_cpp.layers: bound", "query or anchor", bound);
  }
  if (in_block != "bidirectional" && in_block != "causal") {
    keys.refuse("dflash_cpp.layers: in_block", "bidirectional or causal", in_block);
  }
  return {own.required_integer("window"), bound == "query" ? Bound::kQuery : Bound::kAnchor,
          in_block == "causal" ? InBlock::kCausal : InBlock::kBidirectional};
}

// What we wrote ourselves says more than the public keys can; both must agree on what these say.
void read_own_keys(const ZlabKeys& keys, DraftSpec& spec) {
  const auto found = keys.root().find("dflash_cpp");
  if (found == keys.root().end()) return;
  const ZlabKeys own(*found, keys.name());
  const int64_t format = own.required_integer("format");
  if (format != 1) keys.refuse("dflash_cpp.format", "1 (this program may be too old)", format);
  spec.target_hidden_size = own.integer("target_hidden_size").value_or(spec.hidden_size);
  spec.target_fingerprint = own.text("target_fingerprint").value_or("");
  spec.tokenizer_fingerprint = own.text("tokenizer_fingerprint").value_or("");
  const Json* layers = own.find("layers");
  if (!layers) return;
  if (!layers->is_array() || layers->size() != spec.rule.layers.size()) {
    keys.refuse("dflash_cpp.layers", fmt::format("a list of {}", spec.num_layers), *layers);
  }
  for (size_t l = 0; l < layers->size(); ++l) {
    const LayerRule rule = own_layer_rule(keys, layers->at(l));
    if (rule.window != spec.rule.layers[l].window) {
      fail(
          "{}: layer {}: expected one window, got {} (dflash_cpp.layers) and {} (layer_types and "
          "sliding_window)",
          keys.name(), l, rule.window, spec.rule.layers[l].window);
    }
    const std::optional<bool> causal = declared_causal(keys);
    if (causal && *causal != (rule.in_block == InBlock::kCausal)) {
      fail(
          "{}: layer {}: expected one rule in the block, got {} (dflash_cpp.layers) and is_causal "
          "{}",
          keys.name(), l, rule.in_block == InBlock::kCausal ? "causal" : "bidirectional", *causal);
    }
    spec.rule.layers[l] = rule;
  }
}

void read_taps(const ZlabKeys& keys, DraftSpec& spec, int64_t target_num_layers) {
  const auto taps = keys.integers("target_layer_ids");
  // TorchSpec counts its taps in num_target_layers and has the target's depth in a key of its own.
  const std::optional<int64_t> depth = keys.integer("target_num_hidden_layers");
  const int64_t counted = depth ? *depth : keys.integer("num_target_layers").value_or(0);
  spec.target_num_layers = counted > 0 ? counted : target_num_layers;
  if (target_num_layers > 0 && spec.target_num_layers != target_num_layers) {
    fail(
        "{}: num_target_layers: expected {} (the target's), got {}\n  hint: this drafter belongs "
        "to "
        "another target",
        keys.name(), target_num_layers, spec.target_num_layers);
  }
  if (!taps && spec.target_num_layers < 1) {
    fail("{}: target_layer_ids: expected a list, or num_target_layers to derive it, got neither",
         keys.name());
  }
  spec.taps = taps ? *taps : spread_taps(spec.target_num_layers, spec.num_layers);
}

}  // namespace

DraftSpec parse_zlab_config(const Json& config, const std::string& name,
                            int64_t target_num_layers) {
  const ZlabKeys keys(config, name);
  check_family(keys);
  refuse_features(keys);
  refuse_unknown_keys(keys);
  DraftSpec spec;
  read_sizes(keys, spec);
  read_rope(keys, spec);
  read_taps(keys, spec, target_num_layers);
  spec.target_hidden_size = keys.integer("target_hidden_size").value_or(spec.hidden_size);
  if (spec.num_layers < 1 || spec.num_layers > 256) {
    keys.refuse("num_hidden_layers", "1 to 256", spec.num_layers);
  }
  spec.rule.block_size = keys.required_integer("block_size");
  spec.rule.mask_id = keys.required_integer("mask_token_id");
  spec.rule.slot_shift = keys.flag("sample_from_anchor", is_deepspec(keys)) ? 1 : 0;
  spec.rule.layers = public_layer_rules(keys, spec.num_layers);
  read_own_keys(keys, spec);
  check_spec(spec);
  return spec;
}

}  // namespace dflash::draft
