#include "train/batch.h"

#include <ATen/ops/tensor.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::train {
namespace {

constexpr uint64_t kNoiseStream = 0x6e6f697365;

int64_t count_anchors(const data::Dataset& dataset, int64_t document, const TrainOptions& options) {
  const auto ids = dataset.document_ids(document);
  const auto length = std::min<size_t>(ids.size(), options.row_tokens);
  const std::vector<int64_t> doc(length, 0);
  const block::PackedRow row{ids.first(length), dataset.document_mask(document).first(length), doc};
  return std::min<int64_t>(static_cast<int64_t>(block::legal_anchors(row).size()),
                           options.anchors_per_document);
}

/// Target id that slot `at` should predict, or -1.
int64_t label_of(const FeatureRow& row, const block::Blocks& blocks, size_t at,
                 LabelSource source) {
  if (source == LabelSource::kDataToken) {
    const int64_t label_row = blocks.label_row_NK[at];
    return label_row < 0 ? -1 : row.ids[label_row];
  }
  const int64_t teacher_row = blocks.teacher_row_NK[at];
  return teacher_row < 0 ? -1 : row.argmax[teacher_row];
}

Pass make_pass(const FeatureRow& row, std::span<const int64_t> anchors,
               const block::BlockRule& rule, const TrainOptions& options,
               const Vocabulary& vocabulary) {
  Pass pass;
  pass.blocks = block::training_blocks(rule, row.packed(), anchors);
  const size_t slots = pass.blocks.weight_NK.size();
  pass.supervised_NK.assign(slots, 0);
  pass.trained_NK.assign(slots, 0.0F);
  std::vector<int64_t> slot, target_id, teacher_row;
  for (size_t i = 0; i < slots; ++i) {
    if (!(pass.blocks.weight_NK[i] > 0)) continue;
    const int64_t id = label_of(row, pass.blocks, i, options.loss.labels);
    if (id < 0) continue;
    pass.supervised_NK[i] = 1;
    slot.push_back(static_cast<int64_t>(i));
    target_id.push_back(id);
    teacher_row.push_back(pass.blocks.teacher_row_NK[i]);
  }
  const at::Tensor label = vocabulary.draft_id(at::tensor(target_id, at::kLong));
  const at::Tensor inside = label >= 0;
  pass.slot_M = at::tensor(slot, at::kLong).index({inside});
  pass.label_M = label.index({inside});
  pass.teacher_row_M = at::tensor(teacher_row, at::kLong).index({inside});
  const int64_t* chosen = pass.slot_M.const_data_ptr<int64_t>();
  for (int64_t m = 0; m < pass.slot_M.numel(); ++m) pass.trained_NK[chosen[m]] = 1.0F;
  return pass;
}

}  // namespace

RowStream::RowStream(const data::Dataset& dataset, const TrainOptions& options)
    : dataset_(dataset), options_(options) {
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    anchors_D_.push_back(count_anchors(dataset, d, options));
    total_anchors_ += anchors_D_.back();
  }
  if (total_anchors_ == 0) {
    fail(
        "dataset: {} documents without two supervised tokens in a row: nothing to train on\n"
        "  hint: look at the supervised share with 'inspect'",
        dataset.num_documents());
  }
  plan(0, 0);
}

void RowStream::plan(int64_t epoch, int64_t documents) {
  position_ = {epoch, documents};
  const auto order = data::shuffled_documents(dataset_.num_documents(), options_.seed, epoch);
  DF_ASSERT(documents <= static_cast<int64_t>(order.size()), "documents={}", documents);
  const auto rest = std::span<const int64_t>(order).subspan(static_cast<size_t>(documents));
  plan_ =
      rest.empty() ? data::PackedPlan{} : data::pack_documents(dataset_, options_.row_tokens, rest);
  next_row_ = 0;
}

void RowStream::seek(Position position) {
  if (position.documents > dataset_.num_documents()) {
    fail("data position: expected at most {} documents, got {}\n  hint: is it the same dataset?",
         dataset_.num_documents(), position.documents);
  }
  plan(position.epoch, position.documents);
}

int64_t RowStream::anchors_of(const std::vector<data::PackedPlan::Piece>& pieces) const {
  int64_t sum = 0;
  for (const auto& piece : pieces) sum += anchors_D_[piece.document];
  return sum;
}

std::vector<RowStream::Row> RowStream::next_step() {
  std::vector<Row> rows;
  int64_t anchors = 0;
  while (anchors < options_.anchors_per_step) {
    if (next_row_ == plan_.rows.size()) {
      if (!rows.empty()) break;
      plan(position_.epoch + 1, 0);
      continue;
    }
    const auto& pieces = plan_.rows[next_row_++];
    position_.documents += static_cast<int64_t>(pieces.size());
    Row row{.pieces = pieces, .epoch = position_.epoch, .anchors = anchors_of(pieces)};
    for (const auto& piece : pieces) row.piece_anchors.push_back(anchors_D_[piece.document]);
    row.noise_document = pieces.front().document;
    anchors += row.anchors;
    if (row.anchors > 0) rows.push_back(std::move(row));
  }
  return rows;
}

int64_t RowStream::count_steps(int64_t epochs) const {
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = data::shuffled_documents(dataset_.num_documents(), options_.seed, epoch);
    int64_t anchors = 0;
    for (const auto& pieces : data::pack_documents(dataset_, options_.row_tokens, order).rows) {
      anchors += anchors_of(pieces);
      if (anchors < options_.anchors_per_step) continue;
      ++steps;
      anchors = 0;
    }
    steps += anchors > 0 ? 1 : 0;
  }
  return steps;
}

std::vector<Pass> make_passes(const FeatureRow& row, int64_t epoch, const block::BlockRule& rule,
                              const TrainOptions& options, const Vocabulary& vocabulary) {
  const std::vector<int64_t> anchors =
      block::sample_anchors(row.packed(), {.per_document = options.anchors_per_document,
                                           .seed = options.seed,
                                           .epoch = epoch,
                                           .documents = row.document});
  std::vector<Pass> passes;
  const auto limit = static_cast<size_t>(options.anchors_per_pass);
  for (size_t first = 0; first < anchors.size(); first += limit) {
    const auto part = std::span(anchors).subspan(first, std::min(limit, anchors.size() - first));
    passes.push_back(make_pass(row, part, rule, options, vocabulary));
  }
  return passes;
}

double noise_scale(const NoiseOptions& noise, int64_t step, int64_t total_steps) {
  if (!noise.anneal || total_steps <= 0) return noise.scale;
  const double t = static_cast<double>(step) / static_cast<double>(total_steps);
  return noise.scale * 0.5 * (1.0 + std::cos(M_PI * t));
}

at::Tensor noisy_taps(const FeatureRow& row, const NoiseOptions& noise, const NoiseDraw& draw) {
  if (noise.kind == NoiseKind::kNone || draw.scale == 0.0) return row.taps_TF;
  at::Tensor taps = row.taps_TF.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  float* values = taps.data_ptr<float>();
  const auto document = static_cast<uint64_t>(draw.document);
  const int64_t first = draw.first_token * taps.size(1);
  const bool gaussian = noise.kind == NoiseKind::kGaussian;
#pragma omp parallel for schedule(static) if (taps.numel() > 4096)
  for (int64_t i = 0; i < taps.numel(); ++i) {
    const std::initializer_list<uint64_t> keys = {kNoiseStream, draw.seed,
                                                  static_cast<uint64_t>(draw.step), document,
                                                  static_cast<uint64_t>(first + i)};
    const double value = gaussian ? normal01(keys) : 2.0 * uniform01(keys) - 1.0;
    values[i] += static_cast<float>(draw.scale * value);
  }
  return taps;
}

}  // namespace dflash::train
