// Tools and tool calls in every spelling that datasets have -> the one that templates read. Order
// of keys and the form of arguments land in the prompt, so there is one of each (PREP-15, PREP-16).
#pragma once

#include "base/json.h"

namespace dflash::data {

/// A list of {"type": "function", "function": {"name", "description", "parameters", ...}}; null
/// where there are no tools. Read: a list or the JSON text of one; of wrapped functions, bare ones,
/// or JSON texts of either; parameters (or input_schema) as an object or its JSON text. What they
/// hold keeps its order; the null fields that an Arrow table adds are absent. Error: anything else.
OrderedJson canonical_tools(const OrderedJson& tools);

/// A list of {"id"?, "type": "function", "function": {"name", "arguments": {...}}}; null where
/// there are no calls. Read: a list, one call, or the JSON text of either; of wrapped calls or bare
/// ones; arguments (or parameters, input, args) as an object or as its JSON text. Error: anything
/// else, an unknown key too.
OrderedJson canonical_calls(const OrderedJson& calls);

}  // namespace dflash::data
