// The settings that every family has, in both kinds of files. A family reads its own after these,
// then rejects keys that nobody read and checks the whole.
#pragma once

#include <set>
#include <string>

#include "io/gguf.h"
#include "target/config_reader.h"
#include "target/rope_config.h"
#include "target/transformer_config.h"

namespace dflash::target {

struct FamilyTraits {
  std::string family;    // TargetConfig::family
  RopeRules rope = {};   // head_dim is filled in
  int64_t head_dim = 0;  // where the file does not say; 0 = hidden size / heads
};

TransformerConfig read_common(const ConfigReader& config, const FamilyTraits& traits);

/// Keys begin with `prefix` (the file's architecture). The tensors decide about biases and the
/// head: GGUF has no switches for them.
TransformerConfig read_common(const io::GgufFile& file, const std::string& prefix,
                              const FamilyTraits& traits);

/// The experts of an architecture that always renormalises the weights of the chosen ones.
MoeConfig read_gguf_moe(const io::GgufFile& file, const std::string& prefix);

/// Error unless the key is absent or 0.
void require_zero(const io::GgufFile& file, const std::string& key);

}  // namespace dflash::target
