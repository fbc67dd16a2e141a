// The canonical form of a drafter's configuration; every format is converted to this at the edge
// (MODELS.md 4.4) and nothing else leaks into the maths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "block/rule.h"
#include "nn/rope.h"

namespace dflash::draft {

struct DraftSpec {
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0,
          intermediate_size = 0;
  double rms_norm_eps = 1e-6;
  nn::RopeConfig rope;
  bool attention_bias = false;

  std::vector<int64_t> taps;       // 0-based, "residual after block i"
  int64_t target_hidden_size = 0;  // D of the target; fc is [hidden_size, taps * target_hidden]
  int64_t target_num_layers = 0;
  block::BlockRule rule;

  std::vector<int64_t> draft_ids;  // reduced draft vocabulary: draft id -> target id; empty = all
  int64_t vocab_size = 0;          // target's
  int64_t max_positions = 0;       // as the config says, for other programs; 0 = unsaid

  // Who it was trained for; compared when loaded beside a target.
  std::string target_fingerprint, tokenizer_fingerprint;
};

/// Error when anything is impossible (sizes, taps out of range, rule, duplicate draft ids).
void check_spec(const DraftSpec& spec);

}  // namespace dflash::draft
