// Checks of option values, shared by all verbs: what is impossible is refused before anything is
// loaded. Their bounds stand in --help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace dflash::cli {

/// An integer in [least, most]; without `most`, up to a number that no use needs (2^40).
CLI::Validator integer_from(int64_t least, int64_t most = int64_t{1} << 40);
/// A finite number of at least `least`.
CLI::Validator number_from(double least);
/// A share: in (0, 1].
CLI::Validator positive_share();
/// For lists: block numbers from 0 on, none twice.
CLI::Validator distinct_blocks();

/// Bound of every option that counts generated tokens.
inline constexpr int64_t kMaxNewTokens = int64_t{1} << 24;

}  // namespace dflash::cli
