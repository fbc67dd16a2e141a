// The mean of drafters of one form: runs that went different ways from one beginning (a chained
// run and the drafter that it started from, checkpoints of one run) each learned some of their
// data by heart; their mean forgets that first (docs/LOG.md; after Wortsman et al. 2022).
#pragma once

#include <memory>
#include <vector>

#include "draft/drafter.h"

namespace dflash::draft {

/// Parameters of `drafter` become the mean of its own and all others'. Not packed afterwards.
/// Error: a drafter of another form (sizes, taps, rule, draft vocabulary, target); what differs is
/// named.
void average_in(Drafter& drafter, const std::vector<std::shared_ptr<Drafter>>& others);

}  // namespace dflash::draft
