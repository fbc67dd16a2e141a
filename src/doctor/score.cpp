#include "doctor/score.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "block/blocks.h"
#include "decode/proposers.h"
#include "train/losses.h"

namespace dflash::doctor {
namespace {

struct Document {
  std::vector<int64_t> ids, doc;
  std::vector<uint8_t> mask;

  block::PackedRow row() const { return {ids, mask, doc}; }
};

Document document_of(const data::Dataset& dataset, int64_t d) {
  const auto ids = dataset.document_ids(d);
  const auto mask = dataset.document_mask(d);
  return {
      {ids.begin(), ids.end()}, std::vector<int64_t>(ids.size(), 0), {mask.begin(), mask.end()}};
}

/// Slots that predict a token of the answer inside the draft vocabulary.
struct Asked {
  std::vector<int64_t> slot, token;  // index into N * K, target id
};

Asked ask(const Document& document, const block::Blocks& blocks) {
  Asked asked;
  for (int64_t i = 0; i < blocks.num_blocks * blocks.block_size; ++i) {
    if (!(blocks.weight_NK[i] > 0)) continue;
    asked.slot.push_back(i);
    asked.token.push_back(document.ids[blocks.label_row_NK[i]]);
  }
  return asked;
}

/// Per slot of the blocks: q(token) and whether the argmax is the token; 0 where nothing was asked
/// or the token is outside the draft vocabulary.
struct Answers {
  std::vector<float> probability;
  std::vector<uint8_t> hit;
  bool finite = true;
};

Answers answer(const at::Tensor& hidden_RD, const Asked& asked,
               const train::Vocabulary& vocabulary) {
  Answers answers;
  answers.probability.assign(static_cast<size_t>(hidden_RD.size(0)), 0.0F);
  answers.hit.assign(answers.probability.size(), 0);
  const at::Tensor draft_M = vocabulary.draft_id(at::tensor(asked.token, at::kLong));
  const at::Tensor inside = draft_M >= 0;
  const at::Tensor slot_M = at::tensor(asked.slot, at::kLong).index({inside});
  const at::Tensor label_M = draft_M.index({inside});
  if (slot_M.numel() == 0) return answers;
  const auto losses = train::row_losses(
      vocabulary, train::LossOptions{},
      {.hidden_MD = hidden_RD.index_select(0, slot_M), .label_M = label_M, .teacher_MD = {}});
  const auto* slot = slot_M.const_data_ptr<int64_t>();
  const auto* label = label_M.const_data_ptr<int64_t>();
  const auto* probability = losses.label_prob_M.const_data_ptr<float>();
  const auto* argmax = losses.argmax_M.const_data_ptr<int64_t>();
  for (int64_t m = 0; m < slot_M.numel(); ++m) {
    const bool finite = std::isfinite(probability[m]);
    answers.finite = answers.finite && finite;
    answers.probability[slot[m]] = finite ? probability[m] : 0;
    answers.hit[slot[m]] = finite && argmax[m] == label[m] ? 1 : 0;
  }
  return answers;
}

void add_scores(const block::BlockRule& rule, const block::Blocks& blocks, const Answers& answers,
                Score& score) {
  double expected = 0, greedy = 0;
  for (int64_t n = 0; n < blocks.num_blocks; ++n) {
    double all = 1;
    bool hit = true;
    expected += 1;
    greedy += 1;
    for (int64_t j = 1; j < rule.block_size; ++j) {
      const int64_t at = n * rule.block_size + j - rule.slot_shift;
      all *= answers.probability[at];
      hit = hit && answers.hit[at] != 0;
      expected += all;
      greedy += hit ? 1 : 0;
    }
  }
  score.finite = score.finite && answers.finite;
  score.expected.sum_P.push_back(expected);
  score.expected.count_P.push_back(blocks.num_blocks);
  score.greedy.sum_P.push_back(greedy);
  score.greedy.count_P.push_back(blocks.num_blocks);
}

}  // namespace

Score score_convention(const Convention& convention, const draft::Drafter& drafter,
                       const ScoreInputs& inputs) {
  const c10::NoGradGuard no_grad;
  const auto reader = drafter_under(convention, drafter);
  const nn::Table table = decode::draft_table(inputs.target, *reader);
  const block::BlockRule& rule = convention.spec.rule;
  Score score;
  for (int64_t d = 0; d < inputs.dataset.num_documents(); ++d) {
    const Document document = document_of(inputs.dataset, d);
    const std::vector<int64_t> anchors = block::sample_anchors(
        document.row(), {.per_document = inputs.anchors_per_document, .seed = 1});
    if (anchors.empty()) {
      add_scores(rule, {}, {}, score);
      continue;
    }
    const block::Blocks blocks = block::training_blocks(rule, document.row(), anchors);
    const at::Tensor taps_TF =
        features_of(convention, inputs.target, inputs.layers, inputs.banks[d]);
    const at::Tensor ids_NK =
        at::tensor(blocks.ids_NK, at::kLong).view({blocks.num_blocks, blocks.block_size});
    const at::Tensor hidden_NKD =
        reader->forward(reader->context(taps_TF, at::arange(taps_TF.size(0), at::kLong)), blocks,
                        table.embed(ids_NK));
    const at::Tensor hidden_RD = hidden_NKD.flatten(0, 1);
    add_scores(rule, blocks, answer(hidden_RD, ask(document, blocks), inputs.vocabulary), score);
  }
  return score;
}

}  // namespace dflash::doctor
