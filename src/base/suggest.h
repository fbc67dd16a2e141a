// "Did you mean": the names nearest to a misspelt one, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dflash {

/// Number of single-character insertions, deletions and replacements between two strings.
size_t edit_distance(std::string_view a, std::string_view b);

/// Up to `count` of `candidates`, nearest first (equal ones in the order given).
std::vector<std::string> closest_names(std::string_view name,
                                       const std::vector<std::string_view>& candidates,
                                       size_t count = 3);

/// "; did you mean X?" when a candidate differs from `name` in two letters or a third at most, else
/// "".
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace dflash
