// Lines of a check: what was looked at, whether it is as it should be, and what it means.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace dflash::doctor {

enum class Level { kOk, kNote, kWrong };

struct Finding {
  Level level = Level::kOk;
  std::string subject;  // "supervised share"
  std::string text;     // what was found, and what to do where it is not right
};

class Findings {
 public:
  void ok(std::string subject, std::string text);
  void note(std::string subject, std::string text);
  void wrong(std::string subject, std::string text);
  void append(const Findings& other);

  const std::vector<Finding>& all() const { return all_; }
  bool any_wrong() const;
  std::string to_text() const;
  Json to_json() const;

 private:
  std::vector<Finding> all_;
};

}  // namespace dflash::doctor
