// Ids, positions, labels, teacher rows and weights of blocks: many anchors over packed documents
// (training) or one a sequence (decoding). DESIGN.md 2.1; recipes R-MASK-*, R-LOSS-1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "block/rule.h"

namespace dflash::block {

/// One packed row of tokens: several documents one after the other. doc_T is -1 on padding, which
/// may only follow the documents.
struct PackedRow {
  std::span<const int64_t> ids_T;
  std::span<const uint8_t> loss_mask_T;  // 1: the target wrote this token
  std::span<const int64_t> doc_T;        // document number, non-decreasing, -1 = padding
};

/// Blocks as flat row-major arrays; N = num_blocks, K = block_size. Rows are storage rows of the
/// packed row; positions are 0-based inside the document.
struct Blocks {
  int64_t num_blocks = 0, block_size = 0;
  std::vector<int64_t> doc_begin_N;     // storage row of the document's first token
  std::vector<int64_t> anchor_N;        // storage row of the anchor
  std::vector<int64_t> ids_NK;          // [anchor token, mask, mask, ...]
  std::vector<int64_t> pos_NK;          // position(anchor) + k, past the document's end too
  std::vector<int64_t> label_row_NK;    // storage row whose token is the label; -1: none
  std::vector<int64_t> teacher_row_NK;  // storage row whose target logits teach the slot; -1: none
  std::vector<float> weight_NK;         // 1 where trained, else 0; slot decay is a factor of train
};

/// Anchor and the token after it supervised and in one document: the first trained label is that
/// token under both slot conventions.
bool anchor_is_legal(const PackedRow& row, int64_t anchor);

/// All legal anchors in storage order.
std::vector<int64_t> legal_anchors(const PackedRow& row);

/// At most `per_document` legal anchors of every document, drawn without replacement by a generator
/// keyed by (seed, epoch, dataset number of the document, position); sorted. So a document draws
/// the same anchors however it is packed.
struct AnchorSampling {
  int64_t per_document = 64;
  uint64_t seed = 0;
  int64_t epoch = 0;
  /// documents[n] is the dataset number of the document that doc_T calls n; empty: doc_T itself.
  std::span<const int64_t> documents = {};
};
std::vector<int64_t> sample_anchors(const PackedRow& row, const AnchorSampling& sampling);

/// Blocks of the given anchors (any order, each in range and not padding; legal or not).
Blocks training_blocks(const BlockRule& rule, const PackedRow& row,
                       std::span<const int64_t> anchors);

/// One block for decoding: anchor token at `position`, context rows [0, position).
struct DecodingAnchor {
  int64_t token = 0, position = 0;
};
/// Labels and teacher rows are -1 and weights 0; all else equals training_blocks.
Blocks decoding_blocks(const BlockRule& rule, std::span<const DecodingAnchor> anchors);

/// exp(-(k-1)/gamma) for slots 1.., 0 for slot 0 (slot_shift 1: exp(-k/gamma) from slot 0).
/// gamma <= 0: no decay. Paper section "loss"; gamma 7 (B=16), 5 (10), 4 (8); default 4.
std::vector<float> slot_decay(const BlockRule& rule, double gamma);

}  // namespace dflash::block
