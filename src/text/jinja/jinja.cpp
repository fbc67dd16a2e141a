#include "text/jinja/jinja.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace dflash::text::jinja {

Jinja::Jinja(std::string_view source)
    : template_(std::make_shared<const Template>(parse(source))) {}

Rendered Jinja::render(const OrderedJson& variables, int64_t now_seconds,
                       const Limits& limits) const {
  Interpreter interpreter(*template_, limits, now_seconds);
  interpreter.render(variables);
  return {interpreter.take_output(), interpreter.spans(), !interpreter.lost_spans()};
}

bool Jinja::has_generation_tags() const {
  return template_->has_generation_tags;
}

}  // namespace dflash::text::jinja
