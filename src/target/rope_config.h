// Rotary settings, from a Hugging Face config in every spelling in use (rope_theta at the top
// level, in rope_parameters (v5) or in rope_scaling; scaling in rope_parameters or rope_scaling
// (v4), its kind as rope_type or type), or from GGUF metadata. FAULTS EX-05, EX-06, EX-08.
#pragma once

#include <set>
#include <string>

#include "io/gguf.h"
#include "nn/rope.h"
#include "target/config_reader.h"

namespace dflash::target {

/// What a family says about its rotation.
struct RopeRules {
  double default_theta = 10000.0;  // used, with a warning, when no place names a base
  int64_t head_dim = 0;
  bool may_be_partial = false;         // only some dimensions of a head are rotated
  double default_partial = 1.0;        // that share where no place names it
  std::set<std::string> ignored = {};  // keys of the rope dictionary without effect on text
};

/// Errors: two places that disagree (both named), unknown scaling (lists what is known), a partial
/// rotation that the family does not have.
nn::RopeConfig read_rope(const ConfigReader& config, const RopeRules& rules);

/// `prefix`: the architecture ("qwen3").
nn::RopeConfig read_rope(const io::GgufFile& file, const std::string& prefix,
                         const RopeRules& rules);

}  // namespace dflash::target
