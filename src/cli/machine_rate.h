// What this machine does, measured in a fraction of a second, and what the program itself weighs.
#pragma once

#include <cstdint>

#include "nn/compute.h"
#include "plan/plan.h"
#include "plan/shapes.h"

namespace dflash::cli {

/// GFLOP/s of the gate-and-up product of a pass (at most 2048 a side), as training multiplies; GB/s
/// of copying memory that no cache holds, read and written bytes together. The best of some.
plan::Rates measure_rates(const plan::DrafterShape& drafter, const plan::StepShape& step,
                          nn::Compute compute);

/// Memory that this process shows now, without what measuring took: the program, its libraries and
/// what these keep.
int64_t program_bytes();

}  // namespace dflash::cli
