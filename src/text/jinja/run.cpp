#include "text/jinja/run.h"

namespace dflash::text::jinja {

void Run::fail_text(const std::string& what) const {
  throw Error(fmt::format("chat template: line {}: {}", line, what));
}

void Run::unsupported(const std::string& construct) const {
  fail("{} is not supported in chat templates", construct);
}

void Run::exhausted(const char* what, int64_t limit) const {
  fail("it takes more than {} {}: expected a template that ends soon", limit, what);
}

void Nesting::refuse() {
  --run_.depth;  // no destructor runs for what was not made
  run_.fail("calls or expressions inside each other: expected at most {} levels",
            run_.limits().depth);
}

}  // namespace dflash::text::jinja
