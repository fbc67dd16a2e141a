#include "data/drops.h"

#include "base/log.h"
#include "base/progress.h"

namespace dflash::data {

void Drops::add(const std::string& reason, const std::string& where, const std::string& detail) {
  Drop& drop = by_reason_[reason];
  if (++drop.count == 1) drop.first = detail.empty() ? where : where + ": " + detail;
}

int64_t Drops::total() const {
  int64_t total = 0;
  for (const auto& [reason, drop] : by_reason_) total += drop.count;
  return total;
}

void Drops::warn(const std::string& plural) const {
  for (const auto& [reason, drop] : by_reason_) {
    log_warning("{} left out, {}; {}{}", counted(drop.count, plural), reason,
                drop.count == 1 ? "" : "the first: ", drop.first);
  }
}

}  // namespace dflash::data
