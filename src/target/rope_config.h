// Rotary settings of a Hugging Face config, in every spelling in use: rope_theta at the top level,
// in rope_parameters (v5) or in rope_scaling; scaling in rope_parameters or rope_scaling (v4), its
// kind as rope_type or type. FAULTS EX-05, EX-06, EX-08.
#pragma once

#include "nn/rope.h"
#include "target/config_reader.h"

namespace dflash::target {

/// `default_theta` is used, with a warning, when no place names a base. Errors: two places that
/// disagree (both named), unknown scaling (lists what is known), partial rotation.
nn::RopeConfig read_rope(const ConfigReader& config, double default_theta);

}  // namespace dflash::target
