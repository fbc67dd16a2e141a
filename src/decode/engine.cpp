#include "decode/engine.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "base/error.h"
#include "base/profile.h"
#include "base/timer.h"
#include "decode/pass_costs.h"
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
  if (const auto top = request.num_top_log_probs; top && (*top < 0 || *top > config.vocab_size)) {
    fail("generate: request {}: expected top log-probabilities in [0, {}], got {}", index,
         config.vocab_size, *top);
  }
  for (int64_t id : request.prompt) {
    if (id >= 0 && id < config.vocab_size) continue;
    fail("generate: request {}: expected prompt ids in [0, {}), got {}", index, config.vocab_size,
         id);
  }
}

at::Tensor kept_rows(const PassPart& part, const at::Tensor& taps_RF) {
  const at::Tensor own_RF = taps_RF.narrow(0, part.first_row, part.num_rows);
  if (part.way.empty()) return own_RF.narrow(0, 0, part.keep);
  return own_RF.index_select(0, at::tensor(part.way, at::kLong));
}

}  // namespace

Engine::Engine(const target::Target& target, Proposer* proposer, EngineOptions options)
    : target_(target),
      proposer_(proposer),
      options_(std::move(options)),
      taps_(proposer ? proposer->taps() : std::vector<int64_t>{}, options_.capture_taps) {
  if (options_.max_batch < 1 || options_.prefill_rows < 1) {
    fail("generate: expected batch and prefill rows >= 1, got {} and {}", options_.max_batch,
         options_.prefill_rows);
  }
  DF_ASSERT(!options_.reuse_prefixes || options_.capture_taps.empty(),
            "capture of {} taps with reused prefixes", options_.capture_taps.size());
  slots_.resize(static_cast<size_t>(options_.max_batch));
}

Engine::~Engine() = default;

size_t Engine::submit(const Request& request, Result& result) {
  check_request(next_number_, request, target_.config());
  waiting_.push_back({next_number_, &request, &result});
  return next_number_++;
}

void Engine::cancel(size_t request) {
  std::erase_if(waiting_, [request](const Waiting& one) { return one.number == request; });
  for (Slot& slot : slots_) {
    if (slot.sequence && slot.sequence->request_index() == request) release(slot);
  }
}

bool Engine::step() {
  const c10::NoGradGuard no_grad;
  if (!admit()) return false;
  pass();
  retire();
  return true;
}

/// Frees the slot. What it keeps are rows that were committed, in the target's state and in the
/// proposer's memory alike (SV-01, SV-10).
void Engine::release(Slot& slot) {
  if (options_.reuse_prefixes) {
    slot.kept = slot.sequence->take_state();
    const std::span<const int64_t> ids = slot.sequence->ids();
    slot.kept_ids.assign(ids.begin(), ids.begin() + slot.kept->length());
  }
  slot.sequence.reset();
}

/// Frees the slots of finished sequences.
void Engine::retire() {
  for (Slot& slot : slots_) {
    if (!slot.sequence || !slot.sequence->finished()) continue;
    const size_t number = slot.sequence->request_index();
    const Result& result = slot.sequence->result();
    release(slot);
    if (options_.on_finish) options_.on_finish(number, result);
  }
}

/// Fills free slots with waiting requests; false when nothing is left to do.
bool Engine::admit() {
  const auto free = [](const Slot& slot) { return !slot.sequence; };
  const bool closed = options_.stop_admitting && options_.stop_admitting();
  while (!closed && !waiting_.empty() && std::any_of(slots_.begin(), slots_.end(), free)) {
    begin(waiting_.front());
    waiting_.pop_front();
  }
  return !std::all_of(slots_.begin(), slots_.end(), free);
}

/// Rows of the slot's last sequence that the request may begin with; its last prompt row is always
/// run, since the first token is chosen from it.
int64_t Engine::reusable(const Slot& slot, const Request& request) const {
  if (!slot.kept) return 0;
  const auto end = request.prompt.end() - 1;
  const auto [differs, _] =
      std::mismatch(request.prompt.begin(), end, slot.kept_ids.begin(), slot.kept_ids.end());
  return slot.kept->rewindable(differs - request.prompt.begin());
}

/// Takes the free slot with the longest usable prefix; among equals the one that loses least.
void Engine::begin(const Waiting& waiting) {
  Slot* best = nullptr;
  int64_t rows = 0;
  for (Slot& slot : slots_) {
    if (slot.sequence) continue;
    const int64_t usable = reusable(slot, *waiting.request);
    const bool better =
        !best || usable > rows || (usable == rows && slot.kept_ids.size() < best->kept_ids.size());
    if (better) best = &slot, rows = usable;
  }
  std::unique_ptr<target::State> state = std::move(best->kept);
  if (rows > 0) {
    state->rewind(rows);
  } else {
    state = target_.new_state();
  }
  best->kept_ids.clear();
  waiting.result->reused_rows = rows;
  best->sequence = std::make_unique<Sequence>(waiting.number, *waiting.request, target_,
                                              std::move(state), *waiting.result);
  if (proposer_) proposer_->reset(best - slots_.data(), rows);
}

void Engine::draft() {
  if (!proposer_) return;
  std::vector<Proposer::Sequence> asked;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const Sequence* sequence = slots_[slot].sequence.get();
    if (!sequence || sequence->in_prefill()) continue;
    const int64_t room = std::min(sequence->room(), proposer_->max_proposals());
    if (room > 0) {
      asked.push_back({sequence->ids(), static_cast<int64_t>(slot), room, target_.takes_trees()});
    }
  }
  if (asked.empty()) return;
  const std::vector<Proposal> proposals = proposer_->propose(asked);
  DF_ASSERT(proposals.size() == asked.size(), "{} proposals for {} sequences", proposals.size(),
            asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    slots_[asked[i].slot].sequence->set_drafts(proposals[i], asked[i].room);
  }
}

std::vector<PassPart> Engine::plan() const {
  std::vector<PassPart> parts;
  int64_t rows = 0, prefill_left = options_.prefill_rows;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot].sequence) continue;
    PassPart part = slots_[slot].sequence->plan(prefill_left);
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
    const Sequence& sequence = *slots_[part.slot].sequence;
    sequence.append_rows(part, ids_R, pos_R);
    // Prompt rows are all kept, and so is an anchor alone.
    const bool undo = !part.prefill && part.num_rows > 1;
    segments.push_back(
        {sequence.state(), part.first_row, part.num_rows, undo, sequence.row_parents(part)});
  }
  const int64_t count = static_cast<int64_t>(ids_R.size());
  const target::Rows rows = {at::from_blob(ids_R.data(), {count}, at::kLong),
                             at::from_blob(pos_R.data(), {count}, at::kLong), segments};
  return target_.forward(rows, {.taps = taps_.all()});
}

Choices Engine::choices(const std::vector<PassPart>& parts, const target::Hidden& hidden) const {
  std::vector<int64_t> argmax, logits;
  for (const PassPart& part : parts) {
    if (!part.chooses) continue;
    std::vector<int64_t>& rows = slots_[part.slot].sequence->needs_logits() ? logits : argmax;
    const int64_t end = part.first_row + part.num_rows;
    for (int64_t r = part.prefill ? end - 1 : part.first_row; r < end; ++r) rows.push_back(r);
  }
  return Choices(target_, hidden.last_RD, std::move(argmax), std::move(logits));
}

void Engine::hand_out_taps(const std::vector<PassPart>& parts, const at::Tensor& taps_RF) {
  if (taps_.all().empty()) return;
  std::vector<Proposer::Committed> committed;
  std::vector<at::Tensor> pieces;
  for (const PassPart& part : parts) {
    const at::Tensor kept_RF = kept_rows(part, taps_RF);
    const Sequence& sequence = *slots_[part.slot].sequence;
    if (options_.on_taps && !options_.capture_taps.empty()) {
      options_.on_taps(sequence.request_index(), part.first_position, taps_.for_capture(kept_RF));
    }
    if (sequence.finished() && !options_.reuse_prefixes) continue;  // nobody needs its context
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
  times_.prefill_seconds += seconds * share;
  times_.decode_seconds += draft_seconds + seconds * (1.0 - share);
  times_.decode_tokens += decoded;
}

void Engine::pass() {
  const Timer timer;
  profile::Range range("decoding", "drafting, the rest");
  draft();
  const double draft_seconds = timer.seconds(), start = thread_seconds();
  range.next("verification, the rest");
  std::vector<PassPart> parts = plan();
  const target::Hidden hidden = forward(parts);
  const Choices chosen = choices(parts, hidden);
  int64_t decoded = 0;
  range.next("commit");
  for (PassPart& part : parts) {
    const Commit commit = slots_[part.slot].sequence->take(part, chosen);
    if (!part.prefill) decoded += part.keep;
    if (options_.on_commit && !commit.tokens.empty()) options_.on_commit(commit);
  }
  range.next("handing out taps");
  hand_out_taps(parts, hidden.taps_RF);
  if (proposer_ && std::ranges::none_of(parts, &PassPart::prefill)) {
    proposer_->measure({hidden.last_RD.size(0), thread_seconds() - start});
  }
  book(parts, draft_seconds, timer.seconds() - draft_seconds, decoded);
}

const char* finish_name(Finish finish) {
  constexpr const char* kNames[] = {"stop", "length", "context"};
  return kNames[static_cast<int>(finish)];
}

void Proposer::measure(const PassCost&) {}
void Proposer::observe(std::span<const Committed>, const at::Tensor&) {}
void Proposer::reset(int64_t, int64_t) {}

Run generate(const target::Target& target, Proposer* proposer, const std::vector<Request>& requests,
             const EngineOptions& options) {
  Run run;
  run.results.resize(requests.size());
  run.finished.resize(requests.size(), false);
  EngineOptions used = options;
  used.max_batch = std::min<int64_t>(options.max_batch, std::max<size_t>(1, requests.size()));
  used.on_finish = [&](size_t request, const Result& result) {
    run.finished[request] = true;
    if (options.on_finish) options.on_finish(request, result);
  };
  Engine engine(target, proposer, std::move(used));
  for (size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], run.results[i]);
  while (!(options.should_stop && options.should_stop()) && engine.step()) {
  }
  static_cast<PassTimes&>(run) = engine.times();
  return run;
}

}  // namespace dflash::decode
