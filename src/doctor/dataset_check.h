// Is a dataset what training thinks it is: the target's own answers, supervised where the target
// wrote, each document begun and ended once?
#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "doctor/findings.h"
#include "target/target.h"
#include "text/tokenizer.h"

namespace dflash::doctor {

struct DatasetCheckOptions {
  int64_t sample = 64;  // documents that go through the target, evenly spread
};

/// Ids, masks and repetition of every document; with a target also the share of supervised tokens
/// of a sample that are its argmax. `target` may be null.
Findings check_dataset(const data::Dataset& dataset, const text::Tokenizer& tokenizer,
                       const target::Target* target, const DatasetCheckOptions& options = {});

}  // namespace dflash::doctor
