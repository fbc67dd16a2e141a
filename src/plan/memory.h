// Where the memory of a training run goes, part by part, before it starts. Every term is a count of
// tensors that the code keeps (named in its formula) times their bytes; one small term is measured
// and says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/shapes.h"

namespace dflash::plan {

/// The moments of a run at which something of its own is alive; memory peaks in one of them.
enum Phase : unsigned {
  kLoad = 1,        // the target's weights are widened and packed
  kTargetPass = 2,  // live only
  kLoss = 4,        // after the drafter's forward
  kBackward = 8,    // at the last layer, where most is alive
  kUpdate = 16,
  kStep = kTargetPass | kLoss | kBackward | kUpdate,
  kAlways = kLoad | kStep,
};
inline constexpr Phase kPhases[] = {kLoad, kTargetPass, kLoss, kBackward, kUpdate};
const char* phase_name(Phase phase);

struct Term {
  std::string part;     // weights, optimizer, activations, logits chunk, features, cache, ...
  std::string what;     // which tensors
  std::string formula;  // in words
  int64_t bytes = 0;
  unsigned phases = kAlways;
  /// Pages of files that the system takes back when it needs them: seen in the process's size, not
  /// needed to run.
  bool reclaimable = false;
};

struct MemoryPlan {
  std::vector<Term> terms;
  Phase peak_phase = kLoad;
  int64_t needed_bytes = 0;  // at the peak, without what the system can take back
  int64_t peak_bytes = 0;    // what the process shows at its peak
};

/// `program_bytes`: the program and its libraries before they do anything.
MemoryPlan plan_memory(const TargetShape& target, const DrafterShape& drafter,
                       const StepShape& step, int64_t program_bytes);

}  // namespace dflash::plan
