// A trace: the stages of one block, in one safetensors file that any program can write
// (docs/TRACE.md). Comparing ours with another program's says which joint differs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "doctor/deviations.h"
#include "doctor/stages.h"

namespace dflash::doctor {

struct Trace {
  std::string program;       // who wrote it
  std::string dtype;         // "f32" or "bf16": what its numbers were computed in
  std::vector<int64_t> ids;  // the document up to the anchor at least
  int64_t anchor = 0;
  Stages stages = {};  // as in stages.h, one block, without the leading N; context rows only
};

/// Errors name file and tensor: no trace, another version, ids or anchor missing.
Trace read_trace(const std::filesystem::path& path);
void write_trace(const std::filesystem::path& path, const Trace& trace, const Convention& how);

/// Our stages of one block under a convention, in the trace's form.
Stages trace_stages(const Convention& convention, const draft::Drafter& drafter,
                    std::shared_ptr<const target::Target> target, const std::vector<int64_t>& ids,
                    int64_t anchor);

struct TraceReport {
  std::string program;
  std::vector<StageResult> stages = {};    // ours against theirs
  std::vector<std::string> findings = {};  // in words, about taps and context rows
  std::vector<std::string> explained =
      {};  // deviations under which every stage agrees: "name: words"
  std::optional<std::string> closest =
      {};  // else the one that agrees furthest, when one does better
  bool agrees() const;
  std::string to_text() const;
  Json to_json() const;
};

/// Compares, and where something differs looks for the single deviation that makes our numbers
/// theirs.
TraceReport compare_trace(const Trace& trace, const draft::Drafter& drafter,
                          std::shared_ptr<const target::Target> target);

}  // namespace dflash::doctor
