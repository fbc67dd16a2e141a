// The chat page, web/chat.html, as the build embeds it.
#pragma once

#include <string_view>

namespace dflash::serve {

std::string_view chat_page();

}  // namespace dflash::serve
