// A fresh drafter for a target: its sizes follow the target's, its draft vocabulary the dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "draft/drafter.h"
#include "jobs/model.h"

namespace dflash::jobs {

struct NewDrafterOptions {
  int64_t num_layers = 2;                  // depth of the drafter
  int64_t block_size = 8;                  // slots with the anchor; proposals are one fewer
  int64_t num_taps = 5;                    // evenly spread blocks, when `taps` is empty
  std::vector<int64_t> taps;               // 0-based blocks whose output feeds fc
  int64_t mask_id = -1;                    // -1: see resolve_mask_id
  int64_t draft_vocab = 0;                 // most frequent answer tokens only; 0: all
  int64_t window = 0;                      // sliding window of every layer; 0: full attention
  std::string window_bound = "query";      // "query" or "anchor"
  std::string in_block = "bidirectional";  // "bidirectional" or "causal"
  uint64_t seed = 1;                       // of the fresh weights
  bool from_target_layers = false;         // start from copies of the target's last blocks
};

/// What `train` masks with when nothing else is asked for: the first row of the table without a
/// string, or a special token that text never holds. nullopt: the vocabulary has neither.
std::optional<int64_t> unused_token(const Model& model);

/// The given id, else the first embedding row past the tokenizer, else "<empty_output>" (SmolLM2's
/// unused special token). Error when none fits, or the id is an end, begin or pad id or out of
/// range.
int64_t resolve_mask_id(const Model& model, int64_t given);

/// Error: sizes that do not fit, taps out of range.
draft::DraftSpec new_draft_spec(const Model& model, const data::Dataset& dataset,
                                const NewDrafterOptions& options);
std::shared_ptr<draft::Drafter> new_drafter(const Model& model, const draft::DraftSpec& spec,
                                            const NewDrafterOptions& options);

}  // namespace dflash::jobs
