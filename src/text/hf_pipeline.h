// The normalizer, pre_tokenizer and decoder of a tokenizer.json -> the few steps we run. A
// component or setting that is not implemented is an Error that names it.
#pragma once

#include "base/json.h"
#include "text/tokenizer_spec.h"

namespace dflash::text {

/// Fills nfc, splits and byte_level. The post-processor only places begin tokens and trims
/// offsets, which chat text must not have, so it is not read.
void read_pipeline(const Json& tokenizer, TokenizerSpec& spec);

/// Value at `key`, `fallback` when absent or null. Throws nlohmann's type_error on another type.
template <typename T>
T value_or(const Json& node, const char* key, T fallback) {
  const auto found = node.find(key);
  return found == node.end() || found->is_null() ? fallback : found->template get<T>();
}

}  // namespace dflash::text
