// Records that were left out while a file was read: how many by reason, and the first of each.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/fields.h"

namespace dflash::data {

class Drops {
 public:
  struct Drop {
    int64_t count = 0;
    std::string first;  // where it was met first: "file:line" and the detail
  };

  void add(const std::string& reason, const std::string& where, const std::string& detail);
  void add(const Rejected& rejected, const std::string& where) {
    add(rejected.reason, where, rejected.detail);
  }

  const std::map<std::string, Drop>& by_reason() const { return by_reason_; }
  bool empty() const { return by_reason_.empty(); }
  int64_t total() const;

  /// A warning for each reason: "3 prompts left out, broken order of roles; the first: p.json:
  /// record 2: user after user". `plural` names the records.
  void warn(const std::string& plural) const;

 private:
  std::map<std::string, Drop> by_reason_;
};

}  // namespace dflash::data
