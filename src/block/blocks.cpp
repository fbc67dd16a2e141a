#include "block/blocks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::block {
namespace {

constexpr uint64_t kAnchorStream = 0x616e63686f72;  // keeps these draws apart from other uses

int64_t num_rows(const PackedRow& row) {
  DF_ASSERT(row.ids_T.size() == row.loss_mask_T.size() && row.ids_T.size() == row.doc_T.size(),
            "ids={} loss_mask={} doc={}", row.ids_T.size(), row.loss_mask_T.size(),
            row.doc_T.size());
  return static_cast<int64_t>(row.ids_T.size());
}

/// Storage rows of the documents of a row, in order; padding belongs to none.
std::vector<Span> document_spans(const PackedRow& row) {
  std::vector<Span> spans;
  const int64_t rows = num_rows(row);
  for (int64_t t = 0; t < rows && row.doc_T[t] >= 0; ++t) {
    if (t > 0 && row.doc_T[t] == row.doc_T[t - 1]) {
      spans.back().end = t + 1;
    } else {
      DF_ASSERT(t == 0 || row.doc_T[t] > row.doc_T[t - 1], "doc[{}]={} after {}", t, row.doc_T[t],
                row.doc_T[t - 1]);
      spans.push_back({t, t + 1});
    }
  }
  return spans;
}

Span document_of(const std::vector<Span>& spans, int64_t anchor) {
  const auto after = std::upper_bound(spans.begin(), spans.end(), anchor,
                                      [](int64_t t, const Span& span) { return t < span.begin; });
  DF_ASSERT(after != spans.begin() && anchor < std::prev(after)->end,
            "anchor {} is outside the row's documents", anchor);
  return *std::prev(after);
}

Blocks make_blocks(const BlockRule& rule, size_t num_blocks) {
  Blocks blocks;
  blocks.num_blocks = static_cast<int64_t>(num_blocks);
  blocks.block_size = rule.block_size;
  const size_t slots = num_blocks * static_cast<size_t>(rule.block_size);
  blocks.doc_begin_N.resize(num_blocks);
  blocks.anchor_N.resize(num_blocks);
  blocks.ids_NK.assign(slots, rule.mask_id);
  blocks.pos_NK.resize(slots);
  blocks.label_row_NK.assign(slots, -1);
  blocks.teacher_row_NK.assign(slots, -1);
  blocks.weight_NK.assign(slots, 0.0f);
  return blocks;
}

/// The part that training and decoding share: ids, positions, context.
void place_block(Blocks& blocks, int64_t n, const BlockRule& rule, int64_t token, int64_t doc_begin,
                 int64_t anchor) {
  blocks.doc_begin_N[n] = doc_begin;
  blocks.anchor_N[n] = anchor;
  const int64_t first = n * blocks.block_size;
  if (!rule.mask_anchor) blocks.ids_NK[first] = token;
  for (int64_t k = 0; k < blocks.block_size; ++k) {
    blocks.pos_NK[first + k] = std::max<int64_t>(0, anchor - doc_begin + k + rule.position_shift);
  }
}

/// Labels, teachers and weights of block n. A slot whose label lies past the document stays
/// without: it is visible, but reads and trains nothing.
void supervise_block(Blocks& blocks, int64_t n, const BlockRule& rule, const PackedRow& row,
                     Span document) {
  const int64_t anchor = blocks.anchor_N[n];
  for (int64_t k = 0; k < rule.block_size; ++k) {
    const int64_t label = anchor + k + rule.slot_shift;
    if (label >= document.end) return;
    const int64_t at = n * rule.block_size + k;
    blocks.label_row_NK[at] = label;
    // The target's logits at row label-1 are its distribution of token `label`.
    if (label - 1 >= document.begin) blocks.teacher_row_NK[at] = label - 1;
    const bool predicts_anchor = label == anchor;
    if (!predicts_anchor && row.loss_mask_T[label] != 0) blocks.weight_NK[at] = 1.0f;
  }
}

}  // namespace

bool anchor_is_legal(const PackedRow& row, int64_t anchor) {
  if (anchor < 0 || anchor + 1 >= num_rows(row)) return false;
  return row.doc_T[anchor] >= 0 && row.doc_T[anchor] == row.doc_T[anchor + 1] &&
         row.loss_mask_T[anchor] != 0 && row.loss_mask_T[anchor + 1] != 0;
}

std::vector<int64_t> legal_anchors(const PackedRow& row) {
  std::vector<int64_t> anchors;
  const int64_t rows = num_rows(row);
  for (int64_t t = 0; t < rows; ++t) {
    if (anchor_is_legal(row, t)) anchors.push_back(t);
  }
  return anchors;
}

std::vector<int64_t> sample_anchors(const PackedRow& row, const AnchorSampling& sampling) {
  std::vector<int64_t> anchors;
  if (sampling.per_document <= 0) return anchors;
  std::vector<std::pair<uint64_t, int64_t>> drawn;  // (random key, anchor) of one document
  for (const Span& document : document_spans(row)) {
    const auto number = static_cast<size_t>(row.doc_T[document.begin]);
    DF_ASSERT(sampling.documents.empty() || number < sampling.documents.size(), "document {} of {}",
              number, sampling.documents.size());
    const auto dataset_number = static_cast<uint64_t>(
        sampling.documents.empty() ? static_cast<int64_t>(number) : sampling.documents[number]);
    drawn.clear();
    for (int64_t t = document.begin; t + 1 < document.end; ++t) {
      if (!anchor_is_legal(row, t)) continue;
      drawn.emplace_back(mix({kAnchorStream, sampling.seed, static_cast<uint64_t>(sampling.epoch),
                              dataset_number, static_cast<uint64_t>(t - document.begin)}),
                         t);
    }
    // The anchors with the smallest keys are a uniform draw without replacement.
    if (static_cast<int64_t>(drawn.size()) > sampling.per_document) {
      std::nth_element(drawn.begin(), drawn.begin() + sampling.per_document, drawn.end());
      drawn.resize(static_cast<size_t>(sampling.per_document));
    }
    for (const auto& [key, anchor] : drawn) anchors.push_back(anchor);
  }
  std::sort(anchors.begin(), anchors.end());
  return anchors;
}

Blocks training_blocks(const BlockRule& rule, const PackedRow& row,
                       std::span<const int64_t> anchors) {
  const std::vector<Span> documents = document_spans(row);
  Blocks blocks = make_blocks(rule, anchors.size());
  for (int64_t n = 0; n < blocks.num_blocks; ++n) {
    const Span document = document_of(documents, anchors[n]);
    place_block(blocks, n, rule, row.ids_T[anchors[n]], document.begin, anchors[n]);
    supervise_block(blocks, n, rule, row, document);
  }
  return blocks;
}

Blocks decoding_blocks(const BlockRule& rule, std::span<const DecodingAnchor> anchors) {
  Blocks blocks = make_blocks(rule, anchors.size());
  for (int64_t n = 0; n < blocks.num_blocks; ++n) {
    DF_ASSERT(anchors[n].position >= 0, "position={}", anchors[n].position);
    place_block(blocks, n, rule, anchors[n].token, 0, anchors[n].position);
  }
  return blocks;
}

std::vector<float> slot_decay(const BlockRule& rule, double gamma) {
  std::vector<float> decay(static_cast<size_t>(rule.block_size), 0.0f);
  const int64_t first = rule.slot_shift == 0 ? 1 : 0;  // first slot that proposes
  for (int64_t k = first; k < rule.block_size; ++k) {
    const double steps = static_cast<double>(k - first);
    decay[k] = gamma > 0 ? static_cast<float>(std::exp(-steps / gamma)) : 1.0f;
  }
  return decay;
}

}  // namespace dflash::block
