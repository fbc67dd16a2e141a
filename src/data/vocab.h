// A reduced vocabulary for a drafter: the tokens that the target says most often. Proposals outside
// it are impossible, so its coverage bounds acceptance.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/dataset.h"

namespace dflash::data {

struct DraftVocab {
  std::vector<int64_t> ids;  // target ids, ascending
  int64_t supervised = 0;    // supervised tokens counted ...
  int64_t covered = 0;       // ... and those whose id is in the vocabulary
  std::string dataset_fingerprint;

  double coverage() const;
  /// Everything a cache of it must be compared by: dataset, size, ids (PREP-23).
  Json to_json() const;
};

/// `size` ids: those of `always` (stop tokens and others the drafter must be able to propose), then
/// the most frequent supervised ones; equal counts by lower id. Fewer when the data has fewer.
/// Error: size smaller than the number of `always`, or ids outside [0, vocab_size).
DraftVocab make_draft_vocab(const Dataset& dataset, int64_t size, std::span<const int64_t> always,
                            int64_t vocab_size);

}  // namespace dflash::data
