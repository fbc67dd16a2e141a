// What prepare kept, cut and dropped, and why: a table for people, JSON for programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/drops.h"

namespace dflash::data {

class PrepareReport {
 public:
  using Drop = Drops::Drop;

  int64_t rows = 0;       // records read, broken lines included; a .txt file is one
  int64_t pieces = 0;     // more documents that long plain text was cut into
  int64_t more_rows = 0;  // more documents that conversations took: their template rewrites turns
  int64_t documents = 0;  // kept: rows + pieces + more_rows - dropped
  int64_t conversations = 0;           // records with messages that kept documents come from
  int64_t tokens = 0, supervised = 0;  // of the kept documents
  int64_t truncated = 0;               // kept documents cut to the longest length
  int64_t answers_cut = 0;             // kept documents whose last answer has no end token
  std::vector<std::string> warnings;

  void drop(const std::string& reason, const std::string& where, const std::string& detail) {
    drops_.add(reason, where, detail);
  }
  const std::map<std::string, Drop>& drops() const { return drops_.by_reason(); }
  int64_t dropped() const { return drops_.total(); }
  /// Supervised tokens / tokens; 0 when there are none.
  double supervised_share() const;

  std::string text() const;
  Json to_json() const;

 private:
  Drops drops_;
};

}  // namespace dflash::data
