// The one spelling of the JSON type used everywhere.
#pragma once

#include <nlohmann/json.hpp>

namespace dflash {
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
}  // namespace dflash
