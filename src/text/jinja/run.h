// The accounts of one rendering: how much work, memory and depth it has used, and the line that is
// being executed. Every template ends, whatever it asks for: past a bound it is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace dflash::text::jinja {

struct Limits {
  int64_t steps = 8'000'000;          // nodes evaluated and elements visited
  int64_t bytes = 256LL << 20;        // written to strings and containers, altogether
  int64_t output_bytes = 64LL << 20;  // of the rendered text
  int depth = 900;                    // nodes and macro calls inside each other
  int value_depth = 150;              // lists and mappings inside each other
};

class Run {
 public:
  explicit Run(const Limits& limits) : limits_(limits) {}

  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps) exhausted("steps", limits_.steps);
  }
  /// Bytes about to be written or compared; an 8 KB copy costs as much as a step.
  void spend(size_t bytes) {
    if (bytes > static_cast<size_t>(limits_.bytes - bytes_)) exhausted("bytes", limits_.bytes);
    bytes_ += static_cast<int64_t>(bytes);
  }
  const Limits& limits() const { return limits_; }

  /// Error that names the template's line.
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_text(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail_text(const std::string& what) const;
  /// Error for what Jinja or Python has and we do not.
  [[noreturn]] void unsupported(const std::string& construct) const;

  int line = 0;
  int depth = 0;

 private:
  [[noreturn]] void exhausted(const char* what, int64_t limit) const;

  Limits limits_;
  int64_t steps_ = 0, bytes_ = 0;
};

/// Counts a level of nesting for as long as it lives.
class Nesting {
 public:
  explicit Nesting(Run& run) : run_(run) {
    if (++run_.depth > run_.limits().depth) refuse();
  }
  ~Nesting() { --run_.depth; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  [[noreturn]] void refuse();
  Run& run_;
};

}  // namespace dflash::text::jinja
