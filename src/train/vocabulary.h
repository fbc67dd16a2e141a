// Softmax of hidden rows over the frozen head without keeping logits: for every row the mean of the
// head's rows under its own softmax, the log of the normaliser and the most likely id. Losses and
// their gradients follow from these three (losses.h): the gradient of log-sum-exp(x W^T) with
// respect to x is that mean, and the head, being frozen, needs none.
//
// bf16 with AMX: scores of 64 rows by 256 ids live in the core's cache only, as in flash attention
// with keys = values = head rows. Elsewhere: logits of one chunk of rows at a time. Both sum in
// f32; tiles round probabilities to bf16 before their mean, chunks do not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "nn/compute.h"
#include "nn/head.h"

namespace dflash::train {

struct VocabularyMean {
  at::Tensor mean_MD;    // f32, sum over ids of softmax(id) * head row
  at::Tensor log_sum_M;  // f32, log of the sum of exp(logit)
  at::Tensor argmax_M;   // int64, draft ids, lowest on ties
  at::Tensor max_M;      // f32, the largest logit
};

class Vocabulary {
 public:
  /// The V of this class ends before the padding rows of `head` (ids >= num_ids). `compute` names
  /// the type to which hidden and head rows are rounded; sums are f32. `head` has its plain weight;
  /// a copy is kept where type or layout differ. Error when it has a bias, or ids of a reduced
  /// vocabulary that are negative, doubled, or not one a row.
  Vocabulary(const nn::Head& head, nn::Compute compute);
  ~Vocabulary();

  /// hidden_MD f32. A row that is not finite gets statistics that are not, and no other row does.
  VocabularyMean mean(const at::Tensor& hidden_MD) const;
  /// The same by logits of at most `chunk_rows` rows at a time, on any CPU.
  /// chunk_rows > 0.
  VocabularyMean mean_by_chunks(const at::Tensor& hidden_MD, int64_t chunk_rows) const;
  /// f32 logits of all ids, for losses that need whole rows of two distributions. Few rows only.
  at::Tensor logits(const at::Tensor& hidden_MD) const;
  /// f32 product of gradients of logits with the head: [M, V] x [V, D].
  at::Tensor back(const at::Tensor& grad_MV) const;

  /// Values as the products see them (bf16 values when they are in bf16), f32.
  at::Tensor rounded(const at::Tensor& hidden_MD) const;
  /// Head rows of the given draft ids, as f32 values of the type of the products.
  at::Tensor rows(const at::Tensor& id_M) const;
  /// target ids -> draft ids, -1 outside the draft vocabulary. int64, same shape.
  at::Tensor draft_id(const at::Tensor& target_id) const;

  int64_t size() const { return size_; }
  int64_t hidden_size() const { return hidden_; }
  /// "amx tiles" or "chunks of logits", for headers.
  std::string_view method() const;

 private:
  struct Packed;
  int64_t size_ = 0, hidden_ = 0;
  nn::Compute compute_;
  at::Tensor weight_VD_;   // f32 or bf16, as `compute` wants it
  at::Tensor draft_of_V_;  // int64 [largest target id + 1], undefined for identity
  std::unique_ptr<const Packed> packed_;
};

}  // namespace dflash::train
