// Small parts of the tables: numbers, texts and figures of a run.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "runs/run.h"

namespace dflash::runs {

/// How many steps the figures at the end of a run are the mean of, at most.
constexpr int64_t kLastSteps = 20;

/// "2026-11-30 00:48" in local time; "-" for 0.
std::string format_time(std::time_t time);
/// Four digits; "-" for NaN.
std::string format_number(double value);
/// 812, 17.3k, 1.25M.
std::string format_count(int64_t count);
/// A setting's value without the quotes; control characters stay escaped.
std::string format_value(const Json& value);
/// Control characters and what is no UTF-8 are escaped: names come from other people's disks.
std::string printable(const std::string& text);
/// The end of a long text, with ".." before it: of paths the end tells them apart.
std::string keep_end(const std::string& text, size_t most);
/// Lines of at most 80 columns, broken at spaces, further ones indented by `indent`.
std::string wrapped(std::string_view text, size_t indent);

int64_t num_not_applied(const TrainingRun& run);
/// Mean over the last steps of each slot's share of right tokens, slot 0 (the anchor's) included.
std::vector<double> slot_accuracy_at_end(const TrainingRun& run);

}  // namespace dflash::runs
