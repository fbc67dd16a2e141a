// Errors of two kinds: Error is for the user (a bad file, option or value) and is caught once, in
// cli; DF_ASSERT is for our own mistakes and stays on in release builds.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace dflash {

/// What went wrong, with which file or tensor, what was expected, and what to do next:
/// "what: path or tensor: expected X, got Y\n  hint: ...".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void assert_failed(const char* condition, const char* file, int line,
                                const std::string& values);

}  // namespace dflash

/// DF_ASSERT(rows > 0, "rows={}", rows): a broken promise inside this program.
#define DF_ASSERT(condition, ...)                                                        \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::dflash::assert_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (0)
