// String literals of templates: Python's escapes.
#pragma once

#include <string>
#include <string_view>

namespace dflash::text::jinja {

/// The string between the quotes with its escapes resolved. Error: an escape that is cut off, names
/// a character or gives half of a pair.
std::string unescaped(std::string_view literal);

}  // namespace dflash::text::jinja
