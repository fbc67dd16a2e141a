// The AMX path of vocabulary.h: the head packed twice (for scores, and for the mean of rows).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dflash::train {

struct VocabularyMean;

class VocabularyTiles {
 public:
  /// Whether this CPU multiplies bf16 tiles and the width fits them.
  static bool supported(int64_t hidden);
  /// weight_VD bf16 contiguous.
  explicit VocabularyTiles(const at::Tensor& weight_VD);
  VocabularyMean mean(const at::Tensor& hidden_MD) const;

 private:
  struct Worker;
  void walk(const at::Tensor& rows_MD, int64_t first_tile, int64_t last_tile, Worker& worker) const;

  int64_t num_ids_ = 0, hidden_ = 0, num_tiles_ = 0;
  at::Tensor for_scores_;  // bf16 [tiles, blocks of ids][D / 2][ids of a block][2]
  at::Tensor for_mean_;    // bf16 [tiles, blocks of columns][ids / 2][columns of a block][2]
};

}  // namespace dflash::train
