#include "decode/engine.h"

#include <ATen/ops/cat.h>

#include "base/error.h"
#include "base/timer.h"
#include "decode/sequence.h"

namespace dflash::decode {
namespace {

void check_request(size_t index, const Request& request, const target::TargetConfig& config) {
  check_sampling(request.sampling);
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) fail("generate: request {}: expected a prompt of at least one token", index);
  if (length > config.max_positions) {
    fail(
        "generate: request {}: expected a prompt of at most {} tokens (the target's context), got "
        "{}\n  hint: shorten the prompt",
        index, config.max_positions, length);
  }
  if (request.max_new_tokens < 1) {
    fail("generate: request {}: expected max new tokens >= 1, got {}", index,
         request.max_new_tokens);
  }
  for (int64_t id : request.prompt) {
    if (id >= 0 && id < config.vocab_size) continue;
    fail("generate: request {}: expected prompt ids in [0, {}), got {}", index, config.vocab_size,
         id);
  }
}

/// The taps of a pass: the proposer's and the capture's columns of one tensor.
class TapPlan {
 public:
  TapPlan(std::vector<int64_t> proposer, std::vector<int64_t> capture)
      : taps_(proposer), proposer_(proposer.size()), capture_(capture.size()) {
    if (capture != proposer) {
      capture_first_ = proposer_;
      taps_.insert(taps_.end(), capture.begin(), capture.end());
    }
  }

  const std::vector<int64_t>& all() const { return taps_; }
  at::Tensor for_proposer(const at::Tensor& taps_RF) const {
    return columns(taps_RF, 0, proposer_);
  }
  at::Tensor for_capture(const at::Tensor& taps_RF) const {
    return columns(taps_RF, capture_first_, capture_);
  }

 private:
  at::Tensor columns(const at::Tensor& taps_RF, size_t first, size_t count) const {
    if (count == taps_.size()) return taps_RF;
    const int64_t width = taps_RF.size(1) / static_cast<int64_t>(taps_.size());
    return taps_RF.narrow(1, static_cast<int64_t>(first) * width,
                          static_cast<int64_t>(count) * width);
  }

  std::vector<int64_t> taps_;
  size_t proposer_, capture_, capture_first_ = 0;
};

/// Slots of sequences; each pass drafts, verifies, accepts and commits for all of them at once.
class Engine {
 public:
  Engine(const target::Target& target, Proposer* proposer, const std::vector<Request>& requests,
         const EngineOptions& options)
      : target_(target),
        proposer_(proposer),
        requests_(requests),
        options_(options),
        taps_(proposer ? proposer->taps() : std::vector<int64_t>{}, options.capture_taps),
        slots_(std::min<size_t>(options.max_batch, requests.size())) {
    run_.results.resize(requests.size());
    run_.finished.resize(requests.size(), false);
  }

  Run run() {
    while (true) {
      retire();
      if (!admit() || (options_.should_stop && options_.should_stop())) break;
      pass();
    }
    return std::move(run_);
  }

 private:
  void retire();
  bool admit();
  void pass();
  void draft();
  std::vector<PassPart> plan() const;
  target::Hidden forward(const std::vector<PassPart>& parts) const;
  Choices choices(const std::vector<PassPart>& parts, const target::Hidden& hidden) const;
  void hand_out_taps(const std::vector<PassPart>& parts, const at::Tensor& taps_RF);
  void book(const std::vector<PassPart>& parts, double draft_seconds, double seconds,
            int64_t decoded);

  const target::Target& target_;
  Proposer* proposer_;
  const std::vector<Request>& requests_;
  const EngineOptions& options_;
  TapPlan taps_;
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
  size_t next_request_ = 0;
  Run run_;
};

/// Frees the slots of finished sequences.
void Engine::retire() {
  for (std::unique_ptr<Sequence>& sequence : slots_) {
    if (!sequence || !sequence->finished()) continue;
    const size_t index = sequence->request_index();
    sequence.reset();
    run_.finished[index] = true;
    if (options_.on_finish) options_.on_finish(index, run_.results[index]);
  }
}

/// Fills free slots with waiting requests; false when nothing is left to do.
bool Engine::admit() {
  bool any = false;
  const bool closed = options_.stop_admitting && options_.stop_admitting();
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot] && !closed && next_request_ < requests_.size()) {
      const size_t index = next_request_++;
      slots_[slot] =
          std::make_unique<Sequence>(index, requests_[index], target_, run_.results[index]);
      if (proposer_) proposer_->reset(static_cast<int64_t>(slot));
    }
    any = any || slots_[slot];
  }
  return any;
}

void Engine::draft() {
  if (!proposer_) return;
  std::vector<Proposer::Sequence> asked;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const Sequence* sequence = slots_[slot].get();
    if (!sequence || sequence->in_prefill()) continue;
    const int64_t room = std::min(sequence->room(), proposer_->max_proposals());
    if (room > 0) asked.push_back({sequence->ids(), static_cast<int64_t>(slot), room});
  }
  if (asked.empty()) return;
  std::vector<std::vector<int64_t>> proposals = proposer_->propose(asked);
  DF_ASSERT(proposals.size() == asked.size(), "{} lists for {} sequences", proposals.size(),
            asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    std::vector<int64_t>& drafts = proposals[i];
    drafts.resize(std::min<size_t>(drafts.size(), asked[i].room));
    slots_[asked[i].slot]->set_drafts(std::move(drafts));
  }
}

std::vector<PassPart> Engine::plan() const {
  std::vector<PassPart> parts;
  int64_t rows = 0, prefill_left = options_.prefill_rows;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot]) continue;
    PassPart part = slots_[slot]->plan(prefill_left);
    if (part.num_rows == 0) continue;  // its prompt waits for the next pass
    part.slot = static_cast<int64_t>(slot);
    part.first_row = rows;
    rows += part.num_rows;
    if (part.prefill) prefill_left -= part.num_rows;
    parts.push_back(part);
  }
  return parts;
}

target::Hidden Engine::forward(const std::vector<PassPart>& parts) const {
  std::vector<int64_t> ids_R, pos_R;
  std::vector<target::Segment> segments;
  for (const PassPart& part : parts) {
    slots_[part.slot]->append_row_ids(part, ids_R);
    for (int64_t r = 0; r < part.num_rows; ++r) pos_R.push_back(part.first_position + r);
    // Prompt rows are all kept, and so is an anchor alone.
    const bool undo = !part.prefill && part.num_rows > 1;
    segments.push_back({slots_[part.slot]->state(), part.first_row, part.num_rows, undo});
  }
  const int64_t count = static_cast<int64_t>(ids_R.size());
  const target::Rows rows = {at::from_blob(ids_R.data(), {count}, at::kLong),
                             at::from_blob(pos_R.data(), {count}, at::kLong), segments};
  return target_.forward(rows, {.taps = taps_.all()});
}

Choices Engine::choices(const std::vector<PassPart>& parts, const target::Hidden& hidden) const {
  std::vector<int64_t> greedy, sampled;
  for (const PassPart& part : parts) {
    if (!part.chooses) continue;
    std::vector<int64_t>& rows = slots_[part.slot]->greedy() ? greedy : sampled;
    const int64_t end = part.first_row + part.num_rows;
    for (int64_t r = part.prefill ? end - 1 : part.first_row; r < end; ++r) rows.push_back(r);
  }
  return Choices(target_, hidden.last_RD, std::move(greedy), std::move(sampled));
}

void Engine::hand_out_taps(const std::vector<PassPart>& parts, const at::Tensor& taps_RF) {
  if (taps_.all().empty()) return;
  std::vector<Proposer::Committed> committed;
  std::vector<at::Tensor> pieces;
  for (const PassPart& part : parts) {
    const at::Tensor kept_RF = taps_RF.narrow(0, part.first_row, part.keep);
    const Sequence& sequence = *slots_[part.slot];
    if (options_.on_taps && !options_.capture_taps.empty()) {
      options_.on_taps(sequence.request_index(), part.first_position, taps_.for_capture(kept_RF));
    }
    if (sequence.finished()) continue;  // its context is not needed any more
    committed.push_back({part.slot, part.first_position, part.keep});
    pieces.push_back(taps_.for_proposer(kept_RF));
  }
  if (!proposer_ || proposer_->taps().empty() || pieces.empty()) return;
  proposer_->observe(committed, pieces.size() == 1 ? pieces[0] : at::cat(pieces));
}

/// A pass that holds prompt rows and decoding rows is booked on both, by rows; drafting is all
/// decoding.
void Engine::book(const std::vector<PassPart>& parts, double draft_seconds, double seconds,
                  int64_t decoded) {
  int64_t rows = 0, prefill = 0;
  for (const PassPart& part : parts) {
    rows += part.num_rows;
    if (part.prefill) prefill += part.num_rows;
  }
  const double share = static_cast<double>(prefill) / static_cast<double>(rows);
  run_.prefill_seconds += seconds * share;
  run_.decode_seconds += draft_seconds + seconds * (1.0 - share);
  run_.decode_tokens += decoded;
}

void Engine::pass() {
  const Timer timer;
  draft();
  const double draft_seconds = timer.seconds();
  std::vector<PassPart> parts = plan();
  const target::Hidden hidden = forward(parts);
  const Choices chosen = choices(parts, hidden);
  int64_t decoded = 0;
  for (PassPart& part : parts) {
    const Commit commit = slots_[part.slot]->take(part, chosen);
    if (!part.prefill) decoded += part.keep;
    if (options_.on_commit && !commit.tokens.empty()) options_.on_commit(commit);
  }
  hand_out_taps(parts, hidden.taps_RF);
  book(parts, draft_seconds, timer.seconds() - draft_seconds, decoded);
}

}  // namespace

const char* finish_name(Finish finish) {
  constexpr const char* kNames[] = {"stop", "length", "context"};
  return kNames[static_cast<int>(finish)];
}

void Proposer::observe(std::span<const Committed>, const at::Tensor&) {}
void Proposer::reset(int64_t) {}

Run generate(const target::Target& target, Proposer* proposer, const std::vector<Request>& requests,
             const EngineOptions& options) {
  if (options.max_batch < 1 || options.prefill_rows < 1) {
    fail("generate: expected batch and prefill rows >= 1, got {} and {}", options.max_batch,
         options.prefill_rows);
  }
  for (size_t i = 0; i < requests.size(); ++i) check_request(i, requests[i], target.config());
  const c10::NoGradGuard no_grad;
  return Engine(target, proposer, requests, options).run();
}

}  // namespace dflash::decode
