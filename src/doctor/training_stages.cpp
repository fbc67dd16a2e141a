// The stages as training computes them.
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "decode/proposers.h"
#include "doctor/stage_parts.h"
#include "train/source.h"
#include "train/vocabulary.h"

namespace dflash::doctor {
namespace {

train::FeatureRow packed_row(const Convention& convention,
                             const std::shared_ptr<const target::Target>& target,
                             const data::Dataset& dataset) {
  std::vector<data::PackedPlan::Piece> pieces;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    pieces.push_back({d, static_cast<int64_t>(dataset.document_ids(d).size())});
  }
  const std::vector<int64_t> layers = layers_of({convention});
  train::FeatureRow row =
      train::live_source(dataset, target, layers, /*with_last=*/false)->row(pieces);
  row.taps_TF = features_of(convention, *target, layers, row.taps_TF);
  return row;
}

std::vector<int64_t> labels_of(const block::Blocks& blocks, const train::FeatureRow& row) {
  std::vector<int64_t> labels;
  for (const int64_t teacher : blocks.teacher_row_NK) {
    labels.push_back(teacher < 0 ? -1 : row.argmax[teacher]);
  }
  return labels;
}

}  // namespace

Stages training_stages(const Convention& convention, const draft::Drafter& drafter,
                       std::shared_ptr<const target::Target> target, const data::Dataset& dataset,
                       const std::vector<BlockPlace>& places) {
  const c10::NoGradGuard no_grad;
  const train::FeatureRow row = packed_row(convention, target, dataset);
  std::vector<int64_t> anchors;
  for (const BlockPlace& place : places) {
    anchors.push_back(dataset.offsets[place.document] + place.anchor);
  }
  Stages stages;
  stages.add("taps", row.taps_TF);
  const auto reader = drafter_under(convention, drafter);
  reader->set_observer([&](const std::string& stage, const at::Tensor& value) {
    const bool of_block = stage.ends_with("hidden");
    const int64_t size = convention.spec.rule.block_size;
    stages.add(stage, of_block ? value.view({-1, size, value.size(-1)}) : value);
  });
  const draft::PackedContext context = reader->context(row.taps_TF, at::tensor(row.pos, at::kLong));
  const block::BlockRule& rule = convention.spec.rule;
  const block::Blocks blocks = block::training_blocks(rule, row.packed(), anchors);
  add_block_stages(rule, blocks, stages);
  const nn::Table table = decode::draft_table(*target, *reader);
  const at::Tensor hidden_NKD =
      reader->forward(context, blocks, table.embed(as_slots(blocks.ids_NK, blocks.block_size)));
  const nn::Head head = decode::draft_head(*target, *reader);
  const train::Vocabulary vocabulary(head, drafter.compute());
  const at::Tensor logits = vocabulary.logits(hidden_NKD.flatten(0, 1));
  add_logits(rule, logits.view({blocks.num_blocks, blocks.block_size, -1}), head.id_V, stages);
  stages.add("labels", as_slots(labels_of(blocks, row), blocks.block_size));
  stages.add("weights", at::tensor(blocks.weight_NK).view({-1, blocks.block_size}));
  return stages;
}

}  // namespace dflash::doctor
