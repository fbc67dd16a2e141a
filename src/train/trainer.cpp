#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "base/log.h"
#include "base/profile.h"
#include "base/timer.h"
#include "draft/zlab.h"
#include "nn/compute.h"
#include "nn/finite.h"
#include "nn/shapes.h"
#include "train/ranks.h"

namespace dflash::train {
namespace {

constexpr size_t kMinDocumentsMet = 16;  // before a share of bad ones ends a run

/// Adds what passed since the last call to `slot`.
class PhaseClock {
 public:
  void add(double& slot) {
    slot += timer_.seconds();
    timer_.restart();
  }

 private:
  Timer timer_;
};

int64_t grid_steps(const TrainOptions& options, const RowStream& stream) {
  return options.total_steps > 0 ? options.total_steps : stream.count_steps(options.epochs);
}

/// Scores of the trained slots and the gradient of their rows.
profile::Work loss_work(const Vocabulary& vocabulary, int64_t slots) {
  return {.operations = 4.0 * static_cast<double>(slots * vocabulary.size()) *
                        static_cast<double>(vocabulary.hidden_size())};
}

/// Weight of every trained slot, [M].
at::Tensor trained_weights(const Pass& pass, const SlotWeighting& how, const RowLosses& rows) {
  const int64_t* slot = pass.slot_M.const_data_ptr<int64_t>();
  const int64_t count = pass.slot_M.numel();
  std::vector<float> prob_NK;
  if (how.options.slot_weights != SlotWeights::kDecay) {
    prob_NK.assign(pass.trained_NK.size(), 0.0F);
    const float* prob = rows.label_prob_M.const_data_ptr<float>();
    for (int64_t m = 0; m < count; ++m) prob_NK[slot[m]] = prob[m];
  }
  const std::vector<float> weight_NK = slot_weights(how, pass.trained_NK, prob_NK);
  at::Tensor weight_M = at::empty({count}, at::kFloat);
  float* weight = weight_M.data_ptr<float>();
  for (int64_t m = 0; m < count; ++m) weight[m] = weight_NK[slot[m]];
  return weight_M;
}

}  // namespace

/// What one step gathers over its passes.
struct Trainer::Sums {
  explicit Sums(int64_t block_size) : slots(block_size) {}
  double loss = 0, weight = 0;
  int64_t tokens = 0, anchors = 0, trained = 0;
  std::vector<int64_t> bad_documents;  // features not finite; this rank's
  int64_t num_bad = 0;                 // all ranks'
  SlotMetrics slots;
  PhaseSeconds seconds;
  PhaseClock clock;
};

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& other) {
  gather += other.gather, forward += other.forward, loss += other.loss;
  backward += other.backward, reduce += other.reduce, update += other.update;
  orthogonalise += other.orthogonalise;
  return *this;
}

PhaseSeconds& PhaseSeconds::operator/=(double count) {
  for (double* part : {&gather, &forward, &loss, &backward, &reduce, &update, &orthogonalise}) {
    *part /= count;
  }
  return *this;
}

Json PhaseSeconds::to_json() const {
  return {{"gather", gather},
          {"forward", forward},
          {"loss", loss},
          {"backward", backward},
          {"reduce", reduce},
          {"update", update},
          {"orthogonalise", orthogonalise}};
}

Json StepMetrics::to_json() const {
  Json out = slots.to_json();
  out.update({{"step", step},
              {"epoch", epoch},
              {"documents", documents},
              {"tokens", tokens},
              {"anchors", anchors},
              {"trained_slots", trained_slots},
              {"loss", loss},
              {"grad_norm", grad_norm},
              {"rate_factor", rate_factor},
              {"applied", applied},
              {"seconds", seconds.total()},
              {"phases", seconds.to_json()}});
  return out;
}

Trainer::Trainer(TrainParts parts, const TrainOptions& options)
    : parts_(std::move(parts)),
      options_((check_options(options), options)),
      vocabulary_(parts_.head, parts_.drafter->compute()),
      optimizer_(parts_.drafter->parameters(), options.optimizer, parts_.drafter->compute()),
      stream_(parts_.dataset, options) {
  const draft::DraftSpec& spec = parts_.drafter->spec();
  if (vocabulary_.hidden_size() != spec.hidden_size) {
    fail("the head takes {} columns, the drafter gives {}", vocabulary_.hidden_size(),
         spec.hidden_size);
  }
  const int64_t features = static_cast<int64_t>(spec.taps.size()) * spec.target_hidden_size;
  if (parts_.source.feature_size() != features) {
    fail(
        "features: expected {} values a token ({} taps of {}), got {}\n  hint: capture with the "
        "drafter's taps",
        features, spec.taps.size(), spec.target_hidden_size, parts_.source.feature_size());
  }
  if (options.loss.needs_teacher() && (!parts_.source.has_last() || !parts_.final_norm)) {
    fail(
        "soft losses need the target's final hidden states\n  hint: capture with --keep-last, or "
        "use the loss ce");
  }
  if (parts_.teacher_head && options.loss.needs_teacher()) {
    teacher_head_ =
        std::make_unique<const Vocabulary>(*parts_.teacher_head, parts_.drafter->compute());
  }
  parts_.drafter->set_requires_grad(true);
  set_total_steps(grid_steps(options, stream_));
}

void Trainer::set_total_steps(int64_t steps) {
  DF_ASSERT(step_ == 0, "schedule changed at step {}", step_);
  options_.total_steps = steps;
  schedule_ = make_schedule(steps, options_.warmup_share);
}

void Trainer::refit_total_steps(int64_t steps) {
  DF_ASSERT(steps > step_, "a length of {} at step {}", steps, step_);
  options_.total_steps = steps;
  schedule_.refit(step_, steps);
}

at::Tensor Trainer::embed(const block::Blocks& blocks) const {
  const at::Tensor ids =
      at::tensor(blocks.ids_NK, at::kLong).view({blocks.num_blocks, blocks.block_size});
  return parts_.table.embed(ids);
}

void Trainer::quarantine(FeatureRow& row, Sums& sums) {
  for (size_t n = 0, first = 0; n < row.document.size(); ++n) {
    size_t end = first;
    while (end < row.doc.size() && row.doc[end] == static_cast<int64_t>(n)) ++end;
    const auto part_of = [&](const at::Tensor& rows) {
      return rows.defined()
                 ? rows.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(end - first))
                 : at::Tensor();
    };
    const at::Tensor taps = part_of(row.taps_TF), last = part_of(row.last_TD);
    if (!nn::is_finite(taps) || (last.defined() && !nn::is_finite(last))) {
      taps.zero_();
      if (last.defined()) last.zero_();
      std::fill(row.loss_mask.begin() + first, row.loss_mask.begin() + end, uint8_t{0});
      sums.bad_documents.push_back(row.document[n]);
    }
    first = end;
  }
}

/// All ranks judge alike, since they know the documents that others had.
void Trainer::judge_documents(const std::vector<RowStream::Row>& rows, const Sums& sums) {
  for (const RowStream::Row& row : rows) {
    for (const auto& piece : row.pieces) documents_met_.insert(piece.document);
  }
  std::vector<int64_t> bad;
  if (sums.num_bad > 0) bad = gather_numbers(comm(), sums.bad_documents);
  for (const int64_t document : bad) {
    if (!documents_bad_.insert(document).second) continue;
    log_warning("features of document {} are not finite: it is left out", document);
  }
  const auto enough =  // a share of two or three documents says nothing
      std::min(kMinDocumentsMet, static_cast<size_t>(parts_.dataset.num_documents()));
  if (documents_met_.size() >= enough && documents_bad_.size() * 2 > documents_met_.size()) {
    fail(
        "features: {} of {} documents are not finite\n  hint: capture again; fp16 overflows on "
        "some targets, use bf16 or f32",
        documents_bad_.size(), documents_met_.size());
  }
}

void Trainer::run_pass(const FeatureRow& row, const at::Tensor& taps_TF, const Pass& pass,
                       Sums& sums) {
  const int64_t width = vocabulary_.hidden_size();
  std::vector<uint8_t> correct_NK(pass.supervised_NK.size(), 0);
  if (pass.slot_M.numel() > 0) {
    profile::Range part("training", "forward, the rest");
    const c10::AutoGradMode live(true);
    const auto context = parts_.drafter->context(taps_TF, at::tensor(row.pos, at::kLong));
    const at::Tensor hidden_NKD = parts_.drafter->forward(context, pass.blocks, embed(pass.blocks));
    sums.clock.add(sums.seconds.forward);
    part.next("loss", [&] { return loss_work(vocabulary_, pass.slot_M.numel()); });

    LossRows rows;
    rows.hidden_MD = hidden_NKD.detach().view({-1, width}).index_select(0, pass.slot_M);
    rows.label_M = pass.label_M;
    if (options_.loss.needs_teacher()) {
      rows.teacher_MD = parts_.final_norm(row.last_TD.index_select(0, pass.teacher_row_M));
      rows.teacher_head = teacher_head_.get();
    }
    const RowLosses losses = row_losses(vocabulary_, options_.loss, rows);
    const at::Tensor weight_M =
        trained_weights(pass, {parts_.drafter->spec().rule, options_.loss}, losses);
    sums.loss += (losses.loss_M * weight_M).sum(at::kDouble).item<double>();
    sums.weight += weight_M.sum(at::kDouble).item<double>();
    sums.trained += pass.slot_M.numel();
    const at::Tensor right = losses.argmax_M == pass.label_M;
    for (int64_t m = 0; m < right.numel(); ++m) {
      correct_NK[pass.slot_M.const_data_ptr<int64_t>()[m]] = right.const_data_ptr<bool>()[m];
    }
    at::Tensor grad_NKD = at::zeros({hidden_NKD.numel() / width, width}, at::kFloat);
    grad_NKD.index_copy_(0, pass.slot_M, losses.grad_MD * weight_M.unsqueeze(-1));
    sums.clock.add(sums.seconds.loss);
    part.next("backward, the rest");

    hidden_NKD.backward(grad_NKD.view_as(hidden_NKD));
    sums.clock.add(sums.seconds.backward);
  }
  sums.anchors += pass.blocks.num_blocks;
  sums.slots.add(pass.supervised_NK, correct_NK);
}

void Trainer::take_row(const RowStream::Row& planned, Sums& sums) {
  profile::Range part("training", "gather");
  FeatureRow row = parts_.source.row(planned.pieces);
  quarantine(row, sums);
  at::Tensor taps_TF =
      noisy_taps(row, options_.noise,
                 {.scale = noise_scale(options_.noise, step_, schedule_.total_steps),
                  .seed = options_.seed,
                  .step = step_,
                  .document = planned.noise_document,
                  .first_token = planned.noise_token});
  if (parts_.drafter->compute() == nn::Compute::kF32) taps_TF = taps_TF.to(at::kFloat);
  const std::vector<Pass> passes =
      make_passes(row, planned.epoch, parts_.drafter->spec().rule, options_, vocabulary_);
  sums.tokens += static_cast<int64_t>(row.ids.size());
  sums.clock.add(sums.seconds.gather);
  for (const Pass& pass : passes) run_pass(row, taps_TF, pass, sums);
}

void Trainer::sum_over_ranks(Sums& sums) {
  sums.num_bad = static_cast<int64_t>(sums.bad_documents.size());
  if (comm().alone()) return;
  std::array<double, 2> values = {sums.loss, sums.weight};
  comm().all_reduce_sum(std::span<double>(values));
  std::tie(sums.loss, sums.weight) = std::tie(values[0], values[1]);
  std::vector<int64_t> counts = sums.slots.counts();
  counts.insert(counts.end(), {sums.tokens, sums.anchors, sums.trained, sums.num_bad});
  comm().all_reduce_sum(std::span<int64_t>(counts));
  for (int64_t* count : {&sums.num_bad, &sums.trained, &sums.anchors, &sums.tokens}) {
    *count = counts.back();
    counts.pop_back();
  }
  sums.slots.set_counts(counts);
}

StepMetrics Trainer::step() {
  const int64_t block_size = parts_.drafter->spec().rule.block_size;
  Sums sums(block_size);
  const std::vector<RowStream::Row> rows = stream_.next_step();
  const Dealing dealing{.world = comm().world(), .turn = step_, .block_size = block_size};
  const auto hands = deal_rows(rows, dealing);
  for (const RowStream::Row& row : hands[comm().rank()]) take_row(row, sums);
  profile::Range part("training", "sums over ranks");
  sum_over_ranks(sums);
  judge_documents(rows, sums);
  const bool finite = sums.weight > 0 && std::isfinite(sums.loss);
  if (finite) sum_gradients(comm(), parts_.drafter->parameters());
  sums.clock.add(sums.seconds.reduce);
  part.next("update, the rest");
  StepMetrics out;
  out.rate_factor = schedule_.factor(step_);
  out.applied = false;
  if (finite) {
    const UpdateResult result = optimizer_.update(sums.weight, out.rate_factor);
    out.grad_norm = result.grad_norm;
    sums.seconds.orthogonalise = result.orthogonalise_seconds;
    out.applied = result.applied;
    out.loss = sums.loss / sums.weight;
  } else if (sums.weight != 0) {  // NaN too
    out.loss = sums.loss;
  }
  optimizer_.zero_grad();
  sums.clock.add(sums.seconds.update);
  ++step_;
  anchors_done_ += sums.anchors;
  // A step whose documents were all left out has nothing to apply; that is no failure.
  const bool failed = !out.applied && sums.weight != 0;
  bad_steps_ += failed ? 1 : 0;
  bad_in_a_row_ = failed ? bad_in_a_row_ + 1 : 0;
  out.step = step_;
  out.epoch = stream_.position().epoch;
  out.documents = stream_.position().documents;
  out.tokens = sums.tokens;
  out.anchors = sums.anchors;
  out.trained_slots = sums.trained;
  out.slots = sums.slots;
  out.seconds = sums.seconds;
  if (bad_in_a_row_ >= options_.max_bad_steps) {
    fail(
        "training: {} steps in a row had a loss or gradient that is not finite (step {})\n"
        "  hint: lower the learning rates, or compute in f32",
        bad_in_a_row_, step_);
  }
  return out;
}

}  // namespace dflash::train
