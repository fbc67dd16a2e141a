#include "target/rope_config.h"

#include <map>
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

void read_scaling(const ConfigReader& rope, nn::RopeConfig& out) {
  out.scaling = scaling_kind(rope);
  if (out.scaling == "llama3") {
    out.factor = rope.number("factor");
    out.low_freq_factor = rope.number("low_freq_factor");
    out.high_freq_factor = rope.number("high_freq_factor");
    out.original_max_positions = rope.number("original_max_position_embeddings");
    if (!(out.factor >= 1 && out.low_freq_factor > 0 &&
          out.high_freq_factor > out.low_freq_factor && out.original_max_positions > 0)) {
      fail(
          "model config: {}: llama3 scaling: expected factor >= 1 and 0 < low_freq_factor < "
          "high_freq_factor, got {}, {}, {}",
          rope.where(), out.factor, out.low_freq_factor, out.high_freq_factor);
    }
  } else if (out.scaling != "default") {
    fail("model config: {}: unknown rope scaling {}\n  hint: known are default and llama3",
         rope.where(), out.scaling);
  }
  rope.reject_unknown({});
}

bool same_scaling(const nn::RopeConfig& a, const nn::RopeConfig& b) {
  return a.scaling == b.scaling && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_positions == b.original_max_positions;
}

void reject_partial(const ConfigReader& config) {
  const double factor = config.number("partial_rotary_factor", 1.0);
  if (factor != 1.0) {
    fail("model config: {}: partial_rotary_factor: expected 1 for this family, got {}",
         config.where(), factor);
  }
}

}  // namespace

nn::RopeConfig read_rope(const ConfigReader& config, double default_theta) {
  nn::RopeConfig rope;
  std::optional<Stated> theta;
  std::optional<nn::RopeConfig> scaling;
  reject_partial(config);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(key)) continue;
    const ConfigReader nested = config.object(key);
    if (nested.has("rope_theta")) {
      agree(config, theta, {std::string(key) + ".rope_theta", nested.number("rope_theta")});
    }
    reject_partial(nested);
    nn::RopeConfig found;
    read_scaling(nested, found);
    if (scaling && !same_scaling(*scaling, found)) {
      fail(
          "model config: {}: rope_parameters and rope_scaling disagree\n  hint: keep the one that "
          "the model was trained with",
          config.where());
    }
    scaling = found;
  }
  if (config.has("rope_theta")) agree(config, theta, {"rope_theta", config.number("rope_theta")});
  if (scaling) rope = *scaling;
  if (!theta) {
    log_warning("{}: no rope_theta anywhere, {} is used", config.where(), default_theta);
  }
  rope.theta = theta ? theta->value : default_theta;
  if (!(rope.theta > 1))
    fail("model config: {}: rope_theta: expected > 1, got {}", config.where(), rope.theta);
  return rope;
}

}  // namespace dflash::target
