// Which rank this process is, as launchers say it in the environment: torch's own names (RANK,
// WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI's, SLURM's.
#pragma once

#include <functional>
#include <optional>

#include "base/comm_tcp.h"

namespace dflash {

/// Value of a variable, null when unset (std::getenv, or a test's own).
using Environment = std::function<const char*(const char* name)>;

/// Nothing when the environment names one rank or none. Error: half of it is missing, or a number
/// is none.
std::optional<RankPlace> place_from_environment(const Environment& get);

}  // namespace dflash
