// One generation shown as it comes: text on stdout, drafted-and-accepted tokens in colour.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "decode/engine.h"

namespace dflash::cli {

struct Generation {
  std::string text;
  decode::Result result;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_tokens = 0;
  bool stopped = false;  // by a signal

  double tokens_per_second() const {
    return decode_seconds > 0 ? static_cast<double>(decode_tokens) / decode_seconds : 0;
  }
  /// "drafter: tau 2.31, 84.0 tok/s (57 tokens, prompt 0.12 s)", and what cut the answer off.
  std::string summary(const std::string& proposer) const;
  Json to_json(const std::string& proposer, const text::Tokenizer& tokenizer) const;
};

struct StreamOptions {
  bool print = true;   // text to stdout as it comes
  bool color = false;  // accepted draft tokens green
  /// As in decode::Request.
  std::optional<int64_t> num_top_log_probs = {};
};

Generation stream_generation(const jobs::Model& model, decode::Proposer* proposer,
                             const std::vector<int64_t>& prompt, const SamplingOptions& sampling,
                             const StreamOptions& options);

}  // namespace dflash::cli
