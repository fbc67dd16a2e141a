// JSON from strangers: what the plain parser lets pass (duplicate keys, any depth, text after a NUL
// byte) is refused, because two readers that disagree about such a text read two different files.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace dflash {

struct JsonLimits {
  int64_t max_depth = 128;      ///< nested arrays and objects
  bool unique_keys = true;      ///< two equal keys in one object are an error
  uint64_t max_keys = 1 << 24;  ///< keys of the whole text
  /// Keys of one object whose order is kept: it is searched from its first key to its last.
  uint64_t max_ordered_keys = 1 << 13;
};

/// Parses the whole text. Throws Error with the reason alone ("duplicate key \"a\""): the caller
/// adds which file and line.
Json parse_json_strictly(std::string_view text, const JsonLimits& limits = {});

/// The same, keys in the order of the text.
OrderedJson parse_ordered_json_strictly(std::string_view text, const JsonLimits& limits = {});

}  // namespace dflash
