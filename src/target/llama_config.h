// Settings of the Llama family (SmolLM2, Llama 2, 3.x), from a Hugging Face config or GGUF
// metadata. MODELS.md 1.1.
#pragma once

#include "io/gguf.h"
#include "nn/rope.h"
#include "target/config_reader.h"
#include "target/target.h"

namespace dflash::target {

struct LlamaConfig : TargetConfig {
  bool attention_bias = false;  // q, k, v and o
  bool mlp_bias = false;        // gate, up and down
  nn::RopeConfig rope;

  int64_t q_rows() const { return num_heads * head_dim; }
  int64_t kv_rows() const { return num_kv_heads * head_dim; }
};

/// Errors: missing or impossible values, an unknown activation, scaling or key.
LlamaConfig llama_config(const ConfigReader& config);
LlamaConfig llama_config(const io::GgufFile& file);

/// Error naming the first value that is out of range, and `where` it came from.
void check_config(const TargetConfig& config, const std::string& where);

}  // namespace dflash::target
