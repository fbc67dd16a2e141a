// A training run before it starts: memory by part, time by part, whether it fits and what to change
// when it does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/memory.h"
#include "plan/shapes.h"

namespace dflash::plan {

/// What the machine does in a second: products of matrices, and bytes moved in memory.
struct Rates {
  double gflops = 0, gbs = 0;
  bool measured = false;  // here and now, else as given
};

/// Of the rate of one large product, what the parts of a step reach: 0.58 to 0.73 where
/// bench/plan_check.py and profiles compared them (docs/LOG.md).
constexpr double kReachedShare = 0.65;

struct TimePart {
  std::string part, what;
  double operations = 0, bytes = 0, seconds = 0;
};

/// Seconds of one step: products at kReachedShare of the machine's rate of products, the update's
/// passes over weights and moments at its rate of memory.
std::vector<TimePart> plan_time(const TargetShape& target, const DrafterShape& drafter,
                                const StepShape& step, const Rates& rates);

struct Request {
  TargetShape target;
  DrafterShape drafter;
  StepShape step;
  Rates rates;
  int64_t program_bytes = 0;
  std::optional<int64_t> memory_bytes = {};  // what the run must fit into
};

/// One change of options and what would then be needed.
struct Change {
  std::string option;
  int64_t needed_bytes = 0;
};

struct Plan {
  Request request;
  MemoryPlan memory;
  std::vector<TimePart> time;
  std::vector<Change> changes;  // when it does not fit: the ones that help, the best first; the
                                // last one is all of them together

  double seconds() const;
  bool fits() const { return memory.needed_bytes <= request.memory_bytes.value_or(INT64_MAX); }
  std::string text() const;
  Json to_json() const;
};
Plan make_plan(const Request& request);

/// "96GB", "1.5 GiB", "800MB", "5000000": bytes (GB is 1e9). Error: anything else.
int64_t parse_bytes(const std::string& text);
/// "12.3 GB"
std::string format_bytes(int64_t bytes);

}  // namespace dflash::plan
