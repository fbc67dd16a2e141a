// The part of Jinja that chat templates use. A template is parsed once and rendered any number of
// times, from several threads at once; the text equals that of jinja2 as transformers sets it up
// (sandboxed and immutable, trim_blocks, lstrip_blocks, loop controls, {% generation %}). Every
// rendering is bounded in time, memory and depth; what is not supported is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/jinja/run.h"

namespace dflash::text::jinja {

struct Template;

/// What {% generation %} encloses: bytes [begin, end) of the text.
struct GeneratedSpan {
  size_t begin = 0, end = 0;
};

struct Rendered {
  std::string text;
  std::vector<GeneratedSpan> generated;
  bool spans_complete = true;  // false: a block was rendered into a variable, where it has no place
};

class Jinja {
 public:
  /// Error: syntax, or a construct that is not supported, with the line.
  explicit Jinja(std::string_view source);

  /// `variables` is an object; `now_seconds` (Unix time) is what strftime_now tells, in local time.
  /// Error: whatever stops the template, with the line.
  Rendered render(const OrderedJson& variables, int64_t now_seconds,
                  const Limits& limits = {}) const;
  bool has_generation_tags() const;

 private:
  std::shared_ptr<const Template> template_;
};

}  // namespace dflash::text::jinja
