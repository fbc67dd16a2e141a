// The list of block kinds in a Hugging Face config. R-EX-1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "target/config_reader.h"

namespace dflash::target {

/// layer_types, or nothing when the file has none. Errors: a list of another length, a word that
/// is not `known`.
std::vector<std::string> read_layer_types(const ConfigReader& config, int64_t layers,
                                          const std::vector<std::string>& known);

}  // namespace dflash::target
