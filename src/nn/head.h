// Tables and heads: embedding rows in, logits out. A reduced draft vocabulary is a Head with id_V.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/blocks.h"
#include "nn/linear.h"

namespace dflash::nn {

struct Table {
  at::Tensor weight_VD;  // f32 or bf16
  /// ids int64 of any shape -> [..., D] f32. Error when an id is outside [0, V).
  at::Tensor embed(const at::Tensor& ids) const;
};

struct Head {
  Linear linear;        // [V, D], V rows (reduced when id_V is defined)
  at::Tensor id_V;      // int64, draft id -> target id; undefined = identity
  int64_t num_ids = 0;  // ids >= num_ids (padding rows) are -inf

  /// hidden_RD f32 -> [R, V] f32 logits (draft ids when id_V is defined).
  at::Tensor logits(const at::Tensor& hidden_RD) const;
  /// Lowest index of the largest logit of every row, as target ids, int64 [R].
  at::Tensor argmax(const at::Tensor& hidden_RD) const;
};

/// The head of these ids alone, packed; its rows have the bits of the whole head's. `blocks`: the
/// whole head as its file has it, where that was packed. Its plain weight must still be there.
Head head_of(const Head& head, const std::vector<int64_t>& ids,
             const std::optional<BlockWeight>& blocks);

/// Lowest index on ties; int64 [R].
at::Tensor argmax_rows(const at::Tensor& logits_RV);

}  // namespace dflash::nn
