// Answers many requests at once: one thread owns the engine and lets it pass; any thread submits
// and cancels. States: serving -> closing (refuses, finishes what it has) -> done (SV-06).
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "decode/engine.h"
#include "serve/generation.h"

namespace dflash::serve {

struct SchedulerOptions {
  int64_t num_slots = 4;     // requests in one pass
  int64_t max_waiting = 64;  // beyond them; more are refused
  int64_t prefill_rows = 512;
};

/// Since the start.
struct SchedulerStatus {
  bool closing = false;
  int64_t running = 0, waiting = 0;
  int64_t finished = 0, cancelled = 0, failed = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0, tokens = 0;  // of requests that ended
  AcceptanceCounts counts = {};
};

class Scheduler {
 public:
  /// All that is given must outlive it; proposer == nullptr: plain decoding.
  Scheduler(const target::Target& target, decode::Proposer* proposer,
            const text::Tokenizer& tokenizer, SchedulerOptions options);

  /// Error: ApiError, 429 where too many wait, 503 when closing.
  std::shared_ptr<Generation> submit(Query query);
  /// Its client left: out of the engine before the next pass. Nothing when it has ended.
  void cancel(const std::shared_ptr<Generation>& generation);
  /// Refuses from now on.
  void close();
  /// When `run` is over or never was: whoever still waits is told that nothing more will come.
  void abandon();

  /// The engine's thread: passes until it is closed and everybody has an answer. `should_close` is
  /// polled between passes, and every tenth of a second where there are none.
  void run(const std::function<bool()>& should_close = [] { return false; });

  SchedulerStatus status() const;

 private:
  using Shared = std::shared_ptr<Generation>;

  void make_engine(int64_t num_slots, decode::Proposer* proposer);
  bool pass();
  void take_inbox();
  void enter(const Shared& generation);
  void leave(size_t number, Ending ending, const std::string& error = {});
  void recover(const std::string& error);
  void settle(Generation& generation, Ending ending, const std::string& error = {});

  const target::Target& target_;
  decode::Proposer* proposer_;
  const text::Tokenizer& tokenizer_;
  SchedulerOptions options_;

  // The engine's thread alone.
  std::unique_ptr<decode::Engine> engine_;
  std::map<size_t, Shared> living_;  // by the engine's number, in the order of submission
  std::vector<size_t> stopped_;      // a stop text was complete in this pass
  bool recovering_ = false;          // after a failure: one at a time, without drafts
  std::vector<Shared> later_;        // came during that

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Shared> submitted_, cancelled_;
  int64_t num_inside_ = 0;  // submitted and not ended
  SchedulerStatus status_;
};

}  // namespace dflash::serve
