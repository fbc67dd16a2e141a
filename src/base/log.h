// Log lines on stderr (stdout belongs to results and --json). Library code reports through these;
// it never prints otherwise.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace dflash {

void log_line(int level, const std::string& text);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(1, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(2, fmt::format(format, std::forward<Args>(args)...));
}

/// 0 everything, 1 information, 2 warnings only, 3 nothing.
void set_log_level(int level);

}  // namespace dflash
