#include "plan/memory.h"

#include <algorithm>

namespace dflash::plan {
namespace {

constexpr int64_t kF32 = 4, kBF16 = 2;
constexpr int64_t kChunkRows = 256;  // logits at once, where there are no tiles (vocabulary.cpp)
/// Measured, not counted, as the next: what a training process takes beside the tensors
/// listed here, the same for one layer and for five (bench/plan_check.py, docs/LOG.md).
constexpr int64_t kAtWork = 100'000'000;
/// In f32 each thread that multiplies has its own buffers of MKL.
constexpr int64_t kBuffersOfThread = 15'000'000;
/// What the kernel maps around a place of a file that is read: one large folio.
constexpr int64_t kMappedAround = int64_t{2} << 20;
constexpr int64_t kIdsAtOnce = 4096;  // head rows widened at a time (vocabulary.cpp)

/// Collects the terms of one run.
class Planner {
 public:
  Planner(const TargetShape& target, const DrafterShape& drafter, const StepShape& step)
      : t_(target), d_(drafter), s_(step), rows_(step.pass_anchors * drafter.block_size) {}

  MemoryPlan plan(int64_t program_bytes);

 private:
  void add(Term term) {
    if (term.bytes > 0) out_.terms.push_back(std::move(term));
  }
  void weights();
  void optimizer();
  void features();
  void cache();
  void activations();
  void logits();
  void find_peak();
  int64_t width() const { return s_.weight_bytes(); }
  bool bf16() const { return s_.precision == Precision::kBF16; }
  int64_t slots() const { return s_.pass_anchors * (d_.block_size - 1); }

  const TargetShape& t_;
  const DrafterShape& d_;
  const StepShape& s_;
  int64_t rows_;  // block rows of the largest pass
  MemoryPlan out_;
};

void Planner::weights() {
  const int64_t table = t_.vocab_size * t_.hidden_size, own = d_.vocab_size * d_.hidden_size;
  add({"weights", "target, packed for its kernels",
       t_.kept_block_bytes > 0 ? "blocks as the file has them" : "parameters of all blocks x width",
       (t_.block_parameters - t_.kept_block_parameters) * width() + t_.kept_block_bytes});
  const int64_t head = t_.kept_head_bytes > 0 ? t_.kept_head_bytes : table * width();
  add({"weights", "target's table and head", "vocabulary x hidden x width: table, packed head",
       (t_.tied_embeddings ? 1 : 2) * table * width() + head});
  add({"weights", "target, while one matrix is loaded", "largest matrix in f32 and rounded",
       table * (kF32 + (bf16() ? kBF16 : 0)), kLoad});
  add({"weights", "draft vocabulary's head", "its ids x hidden x width, plain and packed",
       d_.reduced_vocab ? 2 * own * width() : 0});
  add({"weights", "drafter", "parameters x 4 (f32 masters)", d_.parameters() * kF32, kStep});
  add({"weights", "drafter, as the products read them",
       "matrices x 2 (bf16), kept for the backward",
       bf16() && !s_.tile_products ? d_.matrices() * kBF16 : 0, kLoss | kBackward});
  add({"mapped files", "target's weights as stored", "bytes of the file", t_.file_bytes, kAlways,
       /*reclaimable=*/true});
}

void Planner::optimizer() {
  const bool several = s_.step_passes > 1;  // the second pass finds the first one's gradients
  add({"optimizer", "gradients", "parameters x 4", d_.parameters() * kF32,
       several ? kLoss | kBackward | kUpdate : kUpdate | 0U});
  const bool muon = s_.optimizer == Optimizer::kMuon;
  add({"optimizer", muon ? "Muon's momentum" : "AdamW's moments",
       muon ? "matrices x 4, norms x 8" : "parameters x 8",
       muon ? d_.matrices() * kF32 + d_.vectors() * 2 * kF32 : d_.parameters() * 2 * kF32, kStep});
  const int64_t largest = std::max(d_.features(), d_.intermediate_size) * d_.hidden_size;
  const int64_t matrices = 7 * d_.num_layers + 1;
  const int64_t at_once = matrices >= s_.threads ? s_.threads : 1;  // one a thread
  add({"optimizer", "orthogonalisation",
       "a thread: direction, results of two rounds, 5 squares of the largest matrix; f32",
       muon ? at_once * (3 * largest + 5 * d_.hidden_size * d_.hidden_size) * kF32 : 0, kUpdate});
}

void Planner::features() {
  const int64_t tokens = s_.row_tokens, f = d_.features();
  const int64_t stored = s_.live_target || !bf16() ? kF32 : kBF16;
  add({"features", "taps of a row", "tokens x taps x hidden x width", tokens * f * stored, kStep});
  add({"features", "taps as fc reads them", "the same x 2, kept for the backward",
       bf16() && (stored == kF32 || s_.tile_products) ? tokens * f * kBF16 : 0, kLoss | kBackward});
  const bool last = s_.live_target || s_.soft_loss;
  add({"features", "last hidden state of a row", "tokens x hidden x 4",
       last ? tokens * t_.hidden_size * kF32 : 0, kStep});
  const int64_t a_token = kBF16 * (f + (s_.soft_loss ? t_.hidden_size : 0)) + kF32;
  const int64_t around = s_.mapped_tokens * a_token + s_.mapped_pieces * kMappedAround;
  const int64_t all = std::max(s_.dataset_tokens, s_.mapped_tokens) * a_token;
  add({"mapped files", "stored features", "tokens read x (taps x hidden x 2 + 4), 2 MiB a document",
       s_.live_target ? 0 : std::min(around, all), kStep, /*reclaimable=*/true});
  add({"dataset", "ids, mask, offsets", "tokens of the dataset x 9", s_.dataset_tokens * 9, kStep});
}

void Planner::cache() {
  if (!s_.live_target) return;
  const int64_t tokens = s_.row_tokens;
  add({"cache", "target's keys and values", "tokens x attention blocks x 2 x kv width x width",
       tokens * t_.attention_blocks * 2 * t_.kv_width * width(), kTargetPass});
  add({"cache", "target's recurrent states", "documents of a row x state",
       s_.row_documents * t_.state_bytes, kTargetPass});
  const int64_t of_row = 3 * t_.hidden_size + 3 * t_.intermediate_size;
  add({"activations", "target, one block at a time", "tokens x (3 hidden + 3 inner) x 4",
       tokens * of_row * kF32, kTargetPass});
}

void Planner::activations() {
  const int64_t h = d_.hidden_size, q = d_.q_width(), kv = d_.kv_width(), i = d_.intermediate_size;
  // Kept by a layer for its backward, f32: both residuals (input of a norm), q/k/v, the attention's
  // q, k, v and output, gate and up; the inputs of the four products, rounded in bf16. In f32 these
  // inputs are kept as they are, the attention's output among them.
  const int64_t f32 = 2 * h + (q + 2 * kv) + (2 * q + 2 * kv) + 2 * i;
  const int64_t inputs = 2 * h + q + i;
  add({"activations", "block rows, kept for the backward",
       "anchors x block x layers x (residuals, q/k/v, attention, gate and up x 4; inputs x width)",
       rows_ * d_.num_layers * (f32 * kF32 + inputs * width()), kLoss | kBackward});
  // The fused context, its k and v of all layers, and the copies that the attention keeps.
  const int64_t context = h * (2 * kF32 + (bf16() ? kBF16 : 0)) + d_.num_layers * 5 * kv * kF32;
  add({"activations", "context rows, kept for the backward",
       "tokens x (fused features, k and v of every layer twice)", s_.row_tokens * context,
       kLoss | kBackward});
  add({"activations", "embeddings and last rows of the blocks", "anchors x block x 3 hidden x 4",
       rows_ * 3 * h * kF32, kLoss | kBackward});
  // The gradients of gate and up beside these and the gradient of down's input.
  add({"activations", "gradients on their way", "anchors x block x (3 inner + 2 hidden) x 4",
       rows_ * (3 * i + 2 * h) * kF32, kBackward});
}

void Planner::logits() {
  const int64_t h = d_.hidden_size, v = d_.vocab_size;
  const bool tiles = bf16() && s_.head_tiles;
  if (tiles) {
    add({"logits chunk", "head, packed twice for scores and means", "2 x vocabulary x hidden x 2",
         2 * v * h * kBF16, kStep});
    add({"logits chunk", "trained slots: rows, means, gradients",
         "slots x hidden x 4 x (4 + threads)", slots() * h * kF32 * (4 + s_.threads), kLoss});
  } else {
    add({"logits chunk", "logits of 256 slots", "256 x vocabulary x 4, and 4096 head rows in f32",
         std::min(kChunkRows, slots()) * v * kF32 + (bf16() ? kIdsAtOnce * h * kF32 : 0), kLoss});
    add({"logits chunk", "trained slots: rows, means, gradients", "slots x hidden x 4 x 5",
         slots() * h * kF32 * 5, kLoss});
  }
  add({"logits chunk", "teacher's distribution", "256 x vocabulary x 4 x 3",
       s_.soft_loss ? 3 * std::min(kChunkRows, slots()) * v * kF32 : 0, kLoss});
}

void Planner::find_peak() {
  for (const Phase phase : kPhases) {
    int64_t needed = 0, shown = 0;
    for (const Term& term : out_.terms) {
      if (!(term.phases & phase)) continue;
      shown += term.bytes;
      needed += term.reclaimable ? 0 : term.bytes;
    }
    if (needed > out_.needed_bytes) {
      out_.needed_bytes = needed;
      out_.peak_phase = phase;
    }
    out_.peak_bytes = std::max(out_.peak_bytes, shown);
  }
}

MemoryPlan Planner::plan(int64_t program_bytes) {
  add({"program", "the program and LibTorch", "measured in this process", program_bytes});
  add({"program", "scratch of LibTorch and oneDNN, tokenizer, freed blocks not used again",
       "measured once", kAtWork, kStep});
  add({"program", "buffers of MKL", "15 MB a thread, f32",
       bf16() ? 0 : kBuffersOfThread * s_.threads, kStep});
  weights();
  optimizer();
  features();
  cache();
  activations();
  logits();
  find_peak();
  return std::move(out_);
}

}  // namespace

const char* phase_name(Phase phase) {
  switch (phase) {
    case kLoad:
      return "loading the target";
    case kTargetPass:
      return "the target's pass";
    case kLoss:
      return "the loss";
    case kBackward:
      return "the backward pass";
    case kUpdate:
      return "the optimizer's update";
    default:
      return "all";
  }
}

MemoryPlan plan_memory(const TargetShape& target, const DrafterShape& drafter,
                       const StepShape& step, int64_t program_bytes) {
  return Planner(target, drafter, step).plan(program_bytes);
}

}  // namespace dflash::plan
