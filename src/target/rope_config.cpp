#include "target/rope_config.h"

#include <optional>

#include "base/error.h"
#include "base/log.h"

namespace dflash::target {
namespace {

/// A value together with the key that gave it, so that a contradiction can name both.
struct Stated {
  std::string key;
  double value = 0;
};

void agree(const ConfigReader& config, std::optional<Stated>& known, const Stated& next) {
  if (known && known->value != next.value) {
    fail(
        "model config: {}: {} is {} but {} is {}\n  hint: keep the one that the model was trained "
        "with",
        config.where(), known->key, known->value, next.key, next.value);
  }
  if (!known) known = next;
}

std::string scaling_kind(const ConfigReader& rope) {
  if (rope.has("rope_type") && rope.has("type") &&
      rope.string("rope_type") != rope.string("type")) {
    fail("model config: {}: rope_type is {} but type is {}", rope.where(), rope.string("rope_type"),
         rope.string("type"));
  }
  if (rope.has("rope_type")) return rope.string("rope_type");
  return rope.string("type", "default");
}

void check_factor(const nn::RopeConfig& rope, const std::string& where) {
  if (rope.factor >= 1 && rope.original_max_positions > 0) return;
  fail(
      "model config: {}: {} scaling: expected factor >= 1 and a positive original length, got {} "
      "and {}",
      where, rope.scaling, rope.factor, rope.original_max_positions);
}

void check_yarn(const nn::RopeConfig& rope, const std::string& where) {
  check_factor(rope, where);
  if (rope.beta_fast > rope.beta_slow && rope.beta_slow > 0 && rope.attention_factor > 0) return;
  fail(
      "model config: {}: yarn scaling: expected 0 < beta_slow < beta_fast and a positive "
      "attention_factor, got {}, {}, {}",
      where, rope.beta_slow, rope.beta_fast, rope.attention_factor);
}

void read_llama3(const ConfigReader& rope, nn::RopeConfig& out) {
  out.factor = rope.number("factor");
  out.low_freq_factor = rope.number("low_freq_factor");
  out.high_freq_factor = rope.number("high_freq_factor");
  out.original_max_positions = rope.number("original_max_position_embeddings");
  check_factor(out, rope.where());
  if (out.low_freq_factor > 0 && out.high_freq_factor > out.low_freq_factor) return;
  fail(
      "model config: {}: llama3 scaling: expected 0 < low_freq_factor < high_freq_factor, got {}, "
      "{}",
      rope.where(), out.low_freq_factor, out.high_freq_factor);
}

/// A bound of 0 means its default, as in transformers.
double bound_or(const ConfigReader& rope, const std::string& key, double fallback) {
  const double value = rope.number(key, 0);
  return value == 0 ? fallback : value;
}

void read_yarn(const ConfigReader& rope, double max_positions, nn::RopeConfig& out) {
  out.factor = rope.number("factor");
  out.original_max_positions = rope.number("original_max_position_embeddings", max_positions);
  out.beta_fast = bound_or(rope, "beta_fast", out.beta_fast);
  out.beta_slow = bound_or(rope, "beta_slow", out.beta_slow);
  out.truncate = rope.boolean("truncate", true);
  const double mscale = rope.number("mscale", 0), all_dim = rope.number("mscale_all_dim", 0);
  if (rope.has("attention_factor")) {
    out.attention_factor = rope.number("attention_factor");
  } else if (mscale != 0 && all_dim != 0) {
    out.attention_factor = nn::yarn_attention_factor(out.factor, mscale, all_dim);
  } else {
    out.attention_factor = nn::yarn_attention_factor(out.factor);
  }
  check_yarn(out, rope.where());
}

[[noreturn]] void unknown_scaling(const std::string& where, const std::string& kind) {
  const bool by_length = kind == "dynamic" || kind == "longrope" || kind == "su";
  fail(
      "model config: {}: unknown rope scaling {}\n  hint: known are default, linear, llama3 and "
      "yarn{}",
      where, kind,
      by_length ? "; a rule that depends on the length of the text would change rows that are "
                  "already in the cache"
                : "");
}

nn::RopeConfig read_scaling(const ConfigReader& rope, double max_positions,
                            const std::set<std::string>& ignored) {
  nn::RopeConfig out;
  out.scaling = scaling_kind(rope);
  if (out.scaling == "llama3") {
    read_llama3(rope, out);
  } else if (out.scaling == "linear") {
    out.factor = rope.number("factor");
    check_factor(out, rope.where());
  } else if (out.scaling == "yarn") {
    read_yarn(rope, max_positions, out);
  } else if (out.scaling != "default") {
    unknown_scaling(rope.where(), out.scaling);
  }
  rope.reject_unknown(ignored);
  return out;
}

bool same_scaling(const nn::RopeConfig& a, const nn::RopeConfig& b) {
  return a.scaling == b.scaling && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor && a.beta_fast == b.beta_fast &&
         a.beta_slow == b.beta_slow && a.truncate == b.truncate &&
         a.attention_factor == b.attention_factor &&
         a.original_max_positions == b.original_max_positions;
}

/// 0 when the whole head is rotated.
int64_t rotary_dim(double share, const RopeRules& rules, const std::string& where) {
  if (share == 1.0) return 0;
  const auto dim = static_cast<int64_t>(static_cast<double>(rules.head_dim) * share);
  if (!rules.may_be_partial) {
    fail("model config: {}: partial_rotary_factor: expected 1 for this family, got {}", where,
         share);
  }
  if (!(share > 0 && share < 1) || dim < 2 || dim % 2) {
    fail(
        "model config: {}: partial_rotary_factor: expected a share of the head dimension {} that "
        "is an even number, got {}",
        where, rules.head_dim, share);
  }
  return dim;
}

double checked_theta(double theta, const std::string& where) {
  if (!(theta > 1)) fail("model config: {}: rope_theta: expected > 1, got {}", where, theta);
  return theta;
}

}  // namespace

nn::RopeConfig read_rope(const ConfigReader& config, const RopeRules& rules) {
  std::optional<Stated> theta, share;
  std::optional<nn::RopeConfig> scaling;
  const double max_positions = config.number("max_position_embeddings");
  const auto take = [&](const ConfigReader& from, const std::string& prefix) {
    for (const auto& [key, known] :
         {std::pair{"rope_theta", &theta}, {"partial_rotary_factor", &share}}) {
      if (from.has(key)) agree(config, *known, {prefix + key, from.number(key)});
    }
  };
  for (const std::string key : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(key)) continue;
    const ConfigReader nested = config.object(key);
    take(nested, key + ".");
    const nn::RopeConfig found = read_scaling(nested, max_positions, rules.ignored);
    if (scaling && !same_scaling(*scaling, found)) {
      fail(
          "model config: {}: rope_parameters and rope_scaling disagree\n  hint: keep the one that "
          "the model was trained with",
          config.where());
    }
    scaling = found;
  }
  take(config, "");
  nn::RopeConfig rope = scaling.value_or(nn::RopeConfig{});
  if (!theta) {
    log_warning("{}: no rope_theta anywhere, {} is used", config.where(), rules.default_theta);
  }
  rope.theta = checked_theta(theta ? theta->value : rules.default_theta, config.where());
  rope.rotary_dim = rotary_dim(share ? share->value : rules.default_partial, rules, config.where());
  return rope;
}

namespace {

void read_gguf_scaling(const io::GgufFile& file, const std::string& prefix, nn::RopeConfig& out) {
  const std::string where = file.path().string(), keys = prefix + ".rope.scaling.";
  const std::string kind = file.has(keys + "type") ? file.string(keys + "type") : "none";
  if (kind == "none") return;
  out.scaling = kind;
  if (kind != "linear" && kind != "yarn") unknown_scaling(where, kind);
  out.factor = file.number(keys + "factor");
  out.original_max_positions =
      file.number(keys + "original_context_length", file.number(prefix + ".context_length"));
  if (kind == "linear") return check_factor(out, where);
  out.beta_fast = file.number(keys + "yarn_beta_fast", out.beta_fast);
  out.beta_slow = file.number(keys + "yarn_beta_slow", out.beta_slow);
  out.attention_factor =
      file.number(keys + "yarn_attn_factor", nn::yarn_attention_factor(out.factor));
  check_yarn(out, where);
}

/// llama3 scaling, as converters store it: one divisor a pair.
void read_gguf_factors(const io::GgufFile& file, int64_t pairs, nn::RopeConfig& out) {
  const io::GgufTensor* freqs = file.find("rope_freqs.weight");
  if (!freqs) return;
  const std::string where = file.path().string();
  if (freqs->numel() != pairs) {
    fail("model config: {}: rope_freqs.weight: expected {} values, got {}", where, pairs,
         freqs->numel());
  }
  std::vector<float> factors(static_cast<size_t>(pairs));
  freqs->widen(factors);
  out.frequency_factors.assign(factors.begin(), factors.end());
  for (const double factor : out.frequency_factors) {
    if (!(factor > 0)) fail("model config: {}: rope_freqs.weight: not positive", where);
  }
}

}  // namespace

nn::RopeConfig read_rope(const io::GgufFile& file, const std::string& prefix,
                         const RopeRules& rules) {
  const std::string where = file.path().string();
  nn::RopeConfig rope;
  rope.theta = checked_theta(file.number(prefix + ".rope.freq_base", rules.default_theta), where);
  const std::string count = prefix + ".rope.dimension_count";
  const int64_t rotated = file.integer(count, rules.head_dim);
  if (rotated != rules.head_dim) {
    if (!rules.may_be_partial || rotated < 2 || rotated > rules.head_dim || rotated % 2) {
      fail("model config: {}: {}: expected {} the head dimension {}, got {}", where, count,
           rules.may_be_partial ? "an even number up to" : "", rules.head_dim, rotated);
    }
    rope.rotary_dim = rotated;
  }
  read_gguf_scaling(file, prefix, rope);
  read_gguf_factors(file, rotated / 2, rope);
  return rope;
}

}  // namespace dflash::target
