#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace dflash {
namespace {

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = spdlog::stderr_color_mt("dflash");
    made->set_pattern("%^%v%$");
    return made;
  }();
  return *instance;
}

}  // namespace

void log_line(int level, const std::string& text) {
  if (level >= 2) {
    logger().warn("warning: {}", text);
  } else {
    logger().info("{}", text);
  }
}

void set_log_level(int level) {
  logger().set_level(level >= 3   ? spdlog::level::off
                     : level == 2 ? spdlog::level::warn
                                  : spdlog::level::info);
}

}  // namespace dflash
