// Tokens -> Template, by jinja2's grammar. Error: a syntax error, or a tag that exists in Jinja but
// has no place in a chat template ({% include %}, {% extends %}, ...), by name and line.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace dflash::text::jinja {

Template parse(std::string_view source);

}  // namespace dflash::text::jinja
