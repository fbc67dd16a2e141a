// What leaves no trace at inference (gamma, loss, noise, labels) stands in the run's own record:
// run.json beside the checkpoints.
#pragma once

#include <filesystem>
#include <optional>

#include "base/json.h"
#include "doctor/findings.h"
#include "draft/spec.h"

namespace dflash::doctor {

/// run.json of the run that a drafter folder (.../checkpoints/step-N/model) or run folder belongs
/// to, if there is one.
std::optional<std::filesystem::path> find_record(const std::filesystem::path& drafter);

/// `record`: a run.json. Unusual settings are notes; a record that contradicts the drafter's own
/// config is wrong. Error: not a run.json.
Findings check_record(const Json& record, const draft::DraftSpec& spec);

}  // namespace dflash::doctor
