// The messages of a chat request -> ids that the target goes on with.
#pragma once

#include <cstdint>
#include <vector>

#include "serve/api.h"

namespace dflash::serve {

/// Reads messages, tools and chat_template_kwargs. Error: ApiError; also what the chat template
/// would leave out without a word.
std::vector<int64_t> read_chat_prompt(Fields& fields, const Served& served);

}  // namespace dflash::serve
