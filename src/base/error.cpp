#include "base/error.h"

namespace dflash {

void assert_failed(const char* condition, const char* file, int line, const std::string& values) {
  throw std::logic_error(
      fmt::format("internal error: {} failed at {}:{}: {}\n  hint: this is a bug "
                  "in dflash-cpp; please report it with the command line",
                  condition, file, line, values));
}

}  // namespace dflash
