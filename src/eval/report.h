// What an evaluation found, as numbers; tables and JSON are made from it. tau is the one of
// base/acceptance.h: committed tokens over verify passes, pooled over prompts (DESIGN.md 2.4).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/acceptance.h"
#include "base/json.h"
#include "eval/compare.h"

namespace dflash::eval {

/// The first token comes out of the prefill; decoding makes the others.
struct Speed {
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t tokens = 0, decode_tokens = 0;

  void add(const Speed& other);
  double decode_rate() const;   // tokens/s after the first token
  double overall_rate() const;  // all tokens over all seconds
};

/// Passes whose anchor stood at a position in [begin, end).
struct ContextBin {
  int64_t begin = 0, end = 0;
  AcceptanceCounts counts;
};

/// One way to decode the tasks: plain, a drafter, or prompt lookup.
struct ArmReport {
  std::string name;
  bool is_drafter = false;         // neither plain decoding nor prompt lookup
  AcceptanceCounts counts;         // all prompts, pooled
  AcceptanceCounts without_loops;  // prompts whose text does not loop
  double mean_of_means = 0;        // mean over prompts of each prompt's own tau, as others print it
  std::vector<ContextBin> by_context;
  Speed speed;
  int64_t num_compared = 0;             // texts that were compared to the plain ones
  std::vector<Difference> differences;  // from the plain text; empty: all compared are the same
  double repeating_drafts = 0;          // share of proposed blocks that repeat one or two tokens
};

struct Report {
  std::string tasks;        // name of the set
  std::string prompt_hash;  // over all prompt ids: two runs compare only when it is the same
  std::string target, kernels;
  int64_t num_tasks = 0;
  int64_t num_too_long = 0;  // tasks left out: prompt longer than the target's context
  std::map<std::string, int64_t> refused;  // tasks left out by the reason (text/prompt.h)
  int64_t num_looping = 0;                 // tasks whose text loops
  double repeating_text = 0;  // share of the texts' windows that repeat one or two tokens
  bool timed = false;         // batch 1, arms in turn: speeds may be compared
  bool has_plain = false;
  ArmReport plain;
  std::vector<ArmReport> arms;
  bool stopped = false;  // cut off by should_stop: the numbers cover fewer tasks

  /// No text differs from the plain one, ties aside (R-EV-6).
  bool lossless() const;
  /// A sentence for each drafter that committed no more than plain decoding does (R-EV-7, FAULTS
  /// DEC-27): one that a bad path silently switched off must not pass as a result. Empty when the
  /// evaluation was stopped.
  std::vector<std::string> ineffective() const;
  double speedup(const ArmReport& arm) const;  // decode rate over the plain one; 0: not measured
  Json to_json() const;
  /// For a terminal.
  std::string to_table() const;
};

}  // namespace dflash::eval
