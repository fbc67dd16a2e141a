// Files of questions: what is no question is left out and counted, so that one odd record of a
// stranger's file never ends a job. Records as io/records.h and data/rows.h read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "data/drops.h"
#include "data/rows.h"
#include "io/records.h"

namespace dflash::data {

/// What to do with a question (parse_prompt) and the record that it stands in; an answer says why
/// it is not taken after all.
using TakeQuestion = std::function<std::optional<Rejected>(
    Row&& question, const OrderedJson& record, const io::RecordPlace& place)>;

/// Calls `take` until it has taken `limit` questions (0: all). What is left out is returned, with a
/// warning for each reason that names the first. Error: not one was taken, or damage behind which
/// the next record cannot be told.
Drops read_questions(const std::filesystem::path& path, int64_t limit, const TakeQuestion& take);

}  // namespace dflash::data
