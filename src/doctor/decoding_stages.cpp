// The stages as decoding computes them: each document on its own, step by step.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"
#include "decode/proposers.h"
#include "doctor/stage_parts.h"

namespace dflash::doctor {
namespace {

/// Rows of a document as a serving loop meets them.
struct Served {
  at::Tensor bank_TF;           // residuals of the layers
  std::vector<int64_t> choice;  // the target's argmax after every token
};

/// Prefill of half the document, then verify passes of block size rows, of which some are drafts
/// that the target rejects: those are rolled back.
Served serve(const target::Target& target, std::span<const int64_t> ids,
             const std::vector<int64_t>& layers, int64_t block_size) {
  const auto length = static_cast<int64_t>(ids.size());
  const auto state = target.new_state();
  std::vector<at::Tensor> parts;
  Served served;
  int64_t done = 0;
  while (done < length) {
    const bool prefill = done == 0;
    const int64_t kept =
        prefill ? std::max<int64_t>(1, length / 2) : std::min(length - done, 1 + done % block_size);
    std::vector<int64_t> rows(ids.begin() + done, ids.begin() + done + kept);
    const int64_t space = target.config().max_positions - done;
    while (!prefill && static_cast<int64_t>(rows.size()) < std::min(block_size, space)) {
      rows.push_back(ids.front());  // a draft that will be rejected
    }
    const auto count = static_cast<int64_t>(rows.size());
    const target::Segment segment{state.get(), 0, count};
    const auto hidden = target.forward(
        {at::tensor(rows, at::kLong), at::arange(done, done + count, at::kLong), {&segment, 1}},
        {.taps = layers});
    state->commit(kept);
    parts.push_back(hidden.taps_RF.narrow(0, 0, kept).clone());
    const at::Tensor choice =
        target.head().argmax(target.final_norm(hidden.last_RD.narrow(0, 0, kept).contiguous()));
    served.choice.insert(served.choice.end(), choice.const_data_ptr<int64_t>(),
                         choice.const_data_ptr<int64_t>() + kept);
    done += kept;
  }
  served.bank_TF = at::cat(parts);
  return served;
}

/// What a verify pass can teach slot k: the target's choice after the token before its position.
struct Taught {
  std::vector<int64_t> labels;
  std::vector<float> weights;
};

void teach(const block::BlockRule& rule, const data::Dataset& dataset, const BlockPlace& place,
           const std::vector<int64_t>& choice, Taught& taught) {
  const auto mask = dataset.document_mask(place.document);
  const auto length = static_cast<int64_t>(mask.size());
  for (int64_t k = 0; k < rule.block_size; ++k) {
    const int64_t position = place.anchor + k + rule.slot_shift;
    const bool inside = position < length;
    taught.labels.push_back(inside && position > 0 ? choice[position - 1] : -1);
    taught.weights.push_back(inside && position > place.anchor && mask[position] ? 1.0F : 0.0F);
  }
}

class DecodingPath {
 public:
  DecodingPath(const Convention& convention, const draft::Drafter& drafter,
               const target::Target& target)
      : rule_(convention.spec.rule),
        reader_(packed_drafter_under(convention, drafter)),
        table_(decode::draft_table(target, *reader_)),
        head_(decode::draft_head(target, *reader_)) {}

  /// Context stages of a whole document: its rows appended in pieces of growing size.
  void run_context(const at::Tensor& taps_TF, Stages& stages) {
    reader_->set_observer(
        [&](const std::string& stage, const at::Tensor& value) { stages.add(stage, value); });
    const auto context = reader_->new_context();
    append(*context, taps_TF, taps_TF.size(0));
    reader_->set_observer({});
  }

  /// Block stages of one anchor. Returns logits [1, K, V].
  at::Tensor run_block(std::span<const int64_t> ids, const at::Tensor& taps_TF, int64_t anchor,
                       Stages& stages) {
    const auto context = reader_->new_context();
    append(*context, taps_TF, std::min(anchor + shift(), taps_TF.size(0)));
    const block::DecodingAnchor at{ids[anchor], anchor};
    const block::Blocks blocks = block::decoding_blocks(rule_, {&at, 1});
    add_block_stages(rule_, blocks, stages);
    reader_->set_observer([&](const std::string& stage, const at::Tensor& value) {
      stages.add(stage, value.view({1, blocks.block_size, -1}));
    });
    draft::SequenceContext* contexts[] = {context.get()};
    const at::Tensor hidden_NKD = reader_->forward(
        contexts, blocks, table_.embed(as_slots(blocks.ids_NK, blocks.block_size)));
    reader_->set_observer({});
    return head_.logits(hidden_NKD.flatten(0, 1)).unsqueeze(0);
  }

  const at::Tensor& id_V() const { return head_.id_V; }

 private:
  // A fault that shows a row more needs that row; without one the context ends before the anchor.
  int64_t shift() const { return std::max<int64_t>(0, rule_.layers.front().context_shift); }

  void append(draft::SequenceContext& context, const at::Tensor& taps_TF, int64_t rows) {
    draft::SequenceContext* contexts[] = {&context};
    for (int64_t first = 0, piece = 1; first < rows; piece = 2 * piece + 1) {
      const int64_t count = std::min(piece, rows - first);
      reader_->append(contexts, {&count, 1}, taps_TF.narrow(0, first, count),
                      at::arange(first, first + count, at::kLong));
      first += count;
    }
  }

  block::BlockRule rule_;
  std::shared_ptr<draft::Drafter> reader_;
  nn::Table table_;
  nn::Head head_;
};

}  // namespace

Stages decoding_stages(const Convention& convention, const draft::Drafter& drafter,
                       const target::Target& target, const data::Dataset& dataset,
                       const std::vector<BlockPlace>& places) {
  const c10::NoGradGuard no_grad;
  const block::BlockRule& rule = convention.spec.rule;
  const std::vector<int64_t> layers = layers_of({convention});
  DecodingPath path(convention, drafter, target);
  Stages stages;
  std::vector<Served> served;
  std::vector<at::Tensor> taps;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    served.push_back(serve(target, dataset.document_ids(d), layers, rule.block_size));
    taps.push_back(features_of(convention, target, layers, served.back().bank_TF));
    stages.add("taps", taps.back());
    path.run_context(taps.back(), stages);
  }
  std::vector<at::Tensor> logits;
  Taught taught;
  for (const BlockPlace& place : places) {
    logits.push_back(path.run_block(dataset.document_ids(place.document), taps[place.document],
                                    place.anchor, stages));
    teach(rule, dataset, place, served[place.document].choice, taught);
  }
  add_logits(rule, at::cat(logits), path.id_V(), stages);
  stages.add("labels", as_slots(taught.labels, rule.block_size));
  stages.add("weights", at::tensor(taught.weights).view({-1, rule.block_size}));
  return stages;
}

}  // namespace dflash::doctor
