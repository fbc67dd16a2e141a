// dataset -> feature shards: taps at every token, the target's argmax, and the final hidden state
// when soft losses want it. Resumable shard by shard; the same rows as live training reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/dataset.h"
#include "target/target.h"

namespace dflash::jobs {

struct CaptureOptions {
  std::filesystem::path out;         // features folder
  std::vector<int64_t> taps;         // "residual after 0-based block i"
  bool keep_last = false;            // also store the pre-norm final hidden state (soft losses)
  bool f32 = false;                  // store f32 instead of bf16
  int64_t rows_per_pass = 1024;      // tokens in one target pass
  int64_t tokens_per_shard = 32768;  // a shard is written when it holds so many
  double max_bad_share = 0.05;       // abort when more (and at least 3) have NaN features
};

struct CaptureReport {
  int64_t documents = 0, resumed = 0, tokens = 0, quarantined = 0;
  std::vector<int64_t> taps = {};
  double seconds = 0;
  bool stopped = false;  // by a signal; the folder can go on

  /// One line for people.
  std::string text() const;
  Json to_json() const;
};

CaptureReport capture(const target::Target& target, const data::Dataset& dataset,
                      const CaptureOptions& options);

}  // namespace dflash::jobs
