#include "serve/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace dflash::serve {
namespace {

constexpr std::chrono::milliseconds kIdle(100);

const char* ending_name(Ending ending) {
  switch (ending) {
    case Ending::kStop:
      return "stop";
    case Ending::kLength:
      return "length";
    case Ending::kCancelled:
      return "cancelled";
    case Ending::kFailed:
      return "failed";
    case Ending::kNone:
      break;
  }
  return "none";
}

}  // namespace

Scheduler::Scheduler(const target::Target& target, decode::Proposer* proposer,
                     const text::Tokenizer& tokenizer, SchedulerOptions options)
    : target_(target), proposer_(proposer), tokenizer_(tokenizer), options_(options) {
  make_engine(options_.num_slots, proposer_);
}

std::shared_ptr<Generation> Scheduler::submit(Query query) {
  auto generation = std::make_shared<Generation>(std::move(query), tokenizer_);
  std::lock_guard lock(mutex_);
  if (status_.closing) {
    throw ApiError({.status = 503, .type = "server_error", .code = "shutting_down"},
                   "the server is shutting down");
  }
  if (num_inside_ >= options_.num_slots + options_.max_waiting) {
    throw ApiError({.status = 429, .type = "rate_limit_error", .code = "queue_full"},
                   fmt::format("{} requests are running and {} waiting: try again later",
                               options_.num_slots, options_.max_waiting));
  }
  ++num_inside_;
  submitted_.push_back(generation);
  wake_.notify_all();
  return generation;
}

void Scheduler::cancel(const std::shared_ptr<Generation>& generation) {
  std::lock_guard lock(mutex_);
  cancelled_.push_back(generation);
  wake_.notify_all();
}

void Scheduler::close() {
  std::lock_guard lock(mutex_);
  status_.closing = true;
  wake_.notify_all();
}

void Scheduler::abandon() {
  close();
  take_inbox();
  for (const Shared& generation : std::exchange(later_, {})) {
    settle(*generation, Ending::kFailed, "the server ended");
  }
  while (!living_.empty()) leave(living_.begin()->first, Ending::kFailed, "the server ended");
}

SchedulerStatus Scheduler::status() const {
  std::lock_guard lock(mutex_);
  SchedulerStatus status = status_;
  status.running = std::min(num_inside_, options_.num_slots);
  status.waiting = num_inside_ - status.running;
  return status;
}

void Scheduler::run(const std::function<bool()>& should_close) {
  while (true) {
    if (should_close()) close();
    take_inbox();
    if (pass()) continue;
    std::unique_lock lock(mutex_);
    if (status_.closing && num_inside_ == 0) return;
    wake_.wait_for(lock, kIdle, [this] {
      return !submitted_.empty() || !cancelled_.empty() || status_.closing;
    });
  }
}

void Scheduler::make_engine(int64_t num_slots, decode::Proposer* proposer) {
  decode::EngineOptions options = {
      .max_batch = num_slots, .prefill_rows = options_.prefill_rows, .reuse_prefixes = true};
  options.on_commit = [this](const decode::Commit& commit) {
    if (living_.at(commit.request)->commit(commit)) stopped_.push_back(commit.request);
  };
  options.on_finish = [this](size_t number, const decode::Result& result) {
    leave(number, result.finish == decode::Finish::kStop ? Ending::kStop : Ending::kLength);
  };
  engine_ = std::make_unique<decode::Engine>(target_, proposer, std::move(options));
}

void Scheduler::take_inbox() {
  std::vector<Shared> submitted, cancelled;
  {
    std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
  }
  for (const Shared& generation : submitted) {
    if (recovering_) {
      later_.push_back(generation);
    } else {
      enter(generation);
    }
  }
  for (const Shared& generation : cancelled) {
    if (std::erase(later_, generation) > 0) settle(*generation, Ending::kCancelled);
    const auto found = std::find_if(living_.begin(), living_.end(),
                                    [&](const auto& entry) { return entry.second == generation; });
    if (found == living_.end()) continue;
    engine_->cancel(found->first);
    leave(found->first, Ending::kCancelled);
  }
}

void Scheduler::enter(const Shared& generation) {
  try {
    if (const Ending ending = generation->reached(); ending != Ending::kNone) {
      return settle(*generation, ending);  // in a pass that failed
    }
    const size_t number = engine_->submit(generation->submission(), generation->result());
    living_[number] = generation;
  } catch (const std::exception& error) {
    settle(*generation, Ending::kFailed, error.what());
  }
}

/// The engine has let go of it.
void Scheduler::leave(size_t number, Ending ending, const std::string& error) {
  const Shared generation = living_.at(number);
  living_.erase(number);
  settle(*generation, ending, error);
}

bool Scheduler::pass() {
  try {
    const bool more = engine_->step();
    for (const size_t number : std::exchange(stopped_, {})) {
      if (!living_.contains(number)) continue;  // the pass ended it, too
      engine_->cancel(number);
      leave(number, Ending::kStop);
    }
    if (more) return true;
  } catch (const std::exception& error) {
    recover(error.what());
    return true;
  }
  if (!recovering_) return false;
  recovering_ = false;
  make_engine(options_.num_slots, proposer_);
  for (const Shared& generation : std::exchange(later_, {})) enter(generation);
  return true;
}

/// A failed pass leaves an engine in pieces. All that were in it go on in a new one from where they
/// are, one at a time and without drafts (the text depends on neither); whose pass then fails is to
/// blame and ends alone (SV-08).
void Scheduler::recover(const std::string& error) {
  log_warning("serve: a pass failed, its requests go on one by one without drafts: {}", error);
  stopped_.clear();
  std::map<size_t, Shared> left = std::exchange(living_, {});
  if (recovering_ && !left.empty()) {
    const Shared culprit = left.begin()->second;
    left.erase(left.begin());
    settle(*culprit, Ending::kFailed, error);
  }
  recovering_ = true;
  make_engine(1, nullptr);
  for (const auto& [number, generation] : left) enter(generation);
}

/// Counted first: who has the answer finds it in the status.
void Scheduler::settle(Generation& generation, Ending ending, const std::string& error) {
  {
    std::lock_guard lock(mutex_);
    --num_inside_;
    if (ending == Ending::kCancelled) {
      ++status_.cancelled;
    } else if (ending == Ending::kFailed) {
      ++status_.failed;
    } else {
      ++status_.finished;
    }
    status_.prompt_tokens += static_cast<int64_t>(generation.query().request.prompt.size());
    status_.reused_tokens += generation.reused_tokens();
    status_.tokens += generation.num_tokens();
    status_.counts.merge(generation.counts());
  }
  log_info("request: prompt {} tokens ({} known), answer {}, tau {:.2f}, {}",
           generation.query().request.prompt.size(), generation.reused_tokens(),
           generation.num_tokens(), generation.counts().tau(), ending_name(ending));
  generation.end(ending, error);
}

}  // namespace dflash::serve
