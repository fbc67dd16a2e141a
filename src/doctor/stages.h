// Every stage of a drafter's work by name, from the training path and from the decoding path, and
// their comparison. Stages in order:
//   taps             [T, F]       what is fed to fc
//   fused            [T, D]       rms(fc(taps))
//   layers.L.k, .v   [T, G, E]    context keys (normed, roped) and values of every layer
//   block.ids        [N, K]       anchor token and mask ids
//   block.positions  [N, K]       rotary positions
//   visible.L        [N, K, 4]    context rows [begin, end) and slots [begin, end) seen in layer L
//   layers.L.hidden  [N, K, D]    rows after layer L
//   hidden           [N, K, D]    after the drafter's own norm
//   logits           [N, K, V]
//   proposals        [N, B-1]     argmax as target ids
//   labels           [N, K]       the target's own choice for every slot, -1: none
//   weights          [N, K]       1 where the slot is trained
// T counts the rows of all documents one after the other; context rows and anchors are counted
// inside their document.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/dataset.h"
#include "doctor/convention.h"

namespace dflash::doctor {

/// In order of computation.
class Stages {
 public:
  /// Appends rows to a stage that is there already.
  void add(const std::string& name, const at::Tensor& value);
  const at::Tensor* find(const std::string& name) const;
  const std::vector<std::pair<std::string, at::Tensor>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, at::Tensor>> all_;
};

struct BlockPlace {
  int64_t document = 0, anchor = 0;  // anchor: position inside the document
};

/// Anchors 0 and 1, the edges of every window, the last ones of each document and `random` others.
std::vector<BlockPlace> telling_anchors(const block::BlockRule& rule, const data::Dataset& dataset,
                                        int64_t random, uint64_t seed);

/// The way training goes: all documents in one packed row, features from the live source, blocks of
/// block::training_blocks, live weights.
Stages training_stages(const Convention& convention, const draft::Drafter& drafter,
                       std::shared_ptr<const target::Target> target, const data::Dataset& dataset,
                       const std::vector<BlockPlace>& places);

/// The way decoding goes: each document alone, prefill of its prompt, then verify passes with
/// rejected rows between, contexts appended in pieces, packed weights, one block at a time.
Stages decoding_stages(const Convention& convention, const draft::Drafter& drafter,
                       const target::Target& target, const data::Dataset& dataset,
                       const std::vector<BlockPlace>& places);

struct StageResult {
  std::string name;
  std::string shape;  // "[12, 8, 576]"
  bool agrees = false;
  double error = 0,
         bound = 0;        // |a - b| / |b| of the worst row (last dimension); integers: |a - b|
  std::string where = {};  // worst element and both values; or shapes that differ
};

/// `tolerance`: bound of the relative error of every row of a floating stage; integers are compared
/// exactly, proposals up to ties of logits within the tolerance. Stages that only one side has are
/// left out.
std::vector<StageResult> compare_stages(const Stages& a, const Stages& b, double tolerance,
                                        const std::vector<int64_t>& draft_ids = {});

/// Bound of a stage between two implementations of the same maths in this type.
double stage_tolerance(nn::Compute compute);

/// One line a stage.
std::string stage_table(const std::vector<StageResult>& results, const std::string& a,
                        const std::string& b);
Json stage_json(const std::vector<StageResult>& results);

}  // namespace dflash::doctor
