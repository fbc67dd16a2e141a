// Every single mistake that training and serving of a drafter are known to make apart from each
// other (FAULTS.md), as a change of the declared convention. One list serves `--explain` (which
// change makes the drafter better?) and `--trace` (which change makes our numbers theirs?).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "doctor/convention.h"
#include "target/target.h"

namespace dflash::doctor {

struct Deviation {
  std::string name;   // "anchor-visible"
  std::string words;  // "the anchor's own feature visible (context rows <= anchor)"
  std::function<void(Convention&)> apply;
};

/// All that make sense for this drafter and target. `longest`: tokens of the longest document that
/// they will be tried on (a window as long as that changes nothing). `mask_ids`: what else a
/// trainer may have masked with, beside the ends of the vocabulary, its end ids and the declared
/// id's neighbours.
std::vector<Deviation> deviations_of(const Convention& declared, const target::Target& target,
                                     int64_t longest, const std::vector<int64_t>& mask_ids = {});

Convention deviate(const Convention& declared, const Deviation& deviation);

}  // namespace dflash::doctor
