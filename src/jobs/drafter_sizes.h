// The sizes of a fresh drafter, from a target's config alone.
#pragma once

#include "draft/spec.h"
#include "jobs/new_drafter.h"
#include "target/target.h"

namespace dflash::jobs {

/// Without what needs a loaded target: mask, draft vocabulary, fingerprints. Not checked.
draft::DraftSpec sizes_for_target(const target::TargetConfig& config,
                                  const NewDrafterOptions& options);

}  // namespace dflash::jobs
