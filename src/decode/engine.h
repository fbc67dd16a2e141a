// Lossless decoding of many sequences at once: draft, verify, accept, commit. Ids in, ids out. The
// text equals plain decoding token for token, greedy and sampled, alone or in a batch, after a
// reused prefix or not, whatever the proposer does (MODELS.md 4.6, 7; DESIGN.md 2.3).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/acceptance.h"
#include "decode/log_probs.h"
#include "decode/proposal.h"
#include "decode/sampler.h"
#include "decode/tap_plan.h"
#include "target/target.h"

namespace dflash::decode {

struct Request {
  std::vector<int64_t> prompt = {};
  Sampling sampling = {};  // greedy by default
  int64_t max_new_tokens = 256;
  std::vector<int64_t> stop_ids = {};  // generation ends after the first of these (it is kept)
  /// Log-probabilities of every token and of so many of the likeliest; nullopt: none.
  std::optional<int64_t> num_top_log_probs = {};
};

enum class Finish { kStop, kLength, kContext };
/// "stop", "length", "context": the one spelling in files and reports.
const char* finish_name(Finish finish);

/// Tokens committed by one pass; `accepted` of them were drafted, the last may be the bonus token.
struct Commit {
  size_t request = 0;
  std::vector<int64_t> tokens;
  int64_t proposed = 0, accepted = 0;    // proposed: the longest way of a tree
  std::vector<TokenLogProbs> log_probs;  // one a token where the request asks for them
};

struct Result {
  std::vector<int64_t> tokens;  // without the prompt, stop token included
  Finish finish = Finish::kLength;
  AcceptanceCounts counts;  // verify passes; the prefill and its token are not counted
  int64_t reused_rows = 0;  // of the prompt, taken over from an earlier sequence
  std::vector<TokenLogProbs> log_probs = {};
};

/// Proposes draft tokens for sequences between passes. A proposer may be wrong, never unsafe.
class Proposer {
 public:
  virtual ~Proposer() = default;

  struct Sequence {
    std::span<const int64_t> ids;  // prompt and committed tokens; the last one is the anchor
    int64_t slot = 0;              // stable number of the engine's slot while the sequence lives
    int64_t room = 0;              // no way longer than this can be used
    bool branches = false;         // whether the target takes trees; else first children are used
  };
  /// One proposal a sequence, no way in it longer than `room` (empty: plain step).
  virtual std::vector<Proposal> propose(std::span<const Sequence> sequences) = 0;
  /// Target taps of rows that were committed, in position order (only when taps() is not empty).
  struct Committed {
    int64_t slot = 0;
    int64_t first_position = 0, num_rows = 0;  // rows of taps_RF one after the other
  };
  virtual void observe(std::span<const Committed> committed, const at::Tensor& taps_RF);
  /// A new sequence took the slot; it begins with the first `rows` rows that were observed there
  /// for the one before.
  virtual void reset(int64_t slot, int64_t rows);
  virtual std::vector<int64_t> taps() const { return {}; }
  /// A pass without prompt rows kept this thread so long (pass_costs.h): verification and all after
  /// it, drafting apart.
  struct PassCost {
    int64_t rows = 0;
    double seconds = 0;
  };
  virtual void measure(const PassCost& cost);
  /// Longest way.
  virtual int64_t max_proposals() const = 0;
  virtual std::string name() const = 0;
};

struct EngineOptions {
  int64_t max_batch = 1;       // sequences in one pass; the others wait for a free slot
  int64_t prefill_rows = 512;  // prompt rows in one pass
  std::function<void(const Commit&)> on_commit = {};  // streaming; may be empty
  /// Called once when a request is complete (not when should_stop cut it off); may be empty.
  std::function<void(size_t request, const Result& result)> on_finish = {};
  /// Taps of every committed row (prompt included; the last token has none) when capture_taps is
  /// not empty: request, first position, rows. For capture during generation.
  std::vector<int64_t> capture_taps = {};
  std::function<void(size_t request, int64_t first_position, const at::Tensor& taps_RF)> on_taps =
      {};
  /// A free slot keeps the rows of its last sequence for a request that begins alike (recurrent
  /// targets: only as a whole). Not together with capture_taps.
  bool reuse_prefixes = false;
  std::function<bool()> stop_admitting = {};  // true: waiting requests are not begun any more
  std::function<bool()> should_stop = {};     // generate() polls it between passes; may be empty
};

struct PassTimes {
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_tokens = 0;  // committed after the prefills' first tokens
};

class Sequence;
struct PassPart;
class Choices;

/// Slots of sequences; every pass drafts, verifies, accepts and commits for all of them at once.
/// Requests may come and go between passes. One thread at a time.
class Engine {
 public:
  /// `target` and `proposer` (nullptr: plain decoding) must outlive it.
  Engine(const target::Target& target, Proposer* proposer, EngineOptions options = {});
  ~Engine();

  /// Waits for a free slot, first come, first served. `request` and `result` must live until
  /// on_finish or cancel. Returns the number that callbacks name: 0, 1, 2, ... Error: a prompt,
  /// sampling or budget that cannot be.
  size_t submit(const Request& request, Result& result);
  /// Takes a request out wherever it is: no callback names it any more, its slot is free for the
  /// next pass. Not from within a callback. Finished or unknown: nothing happens.
  void cancel(size_t request);
  /// One pass over all that live; false when nobody does or waits.
  bool step();
  const PassTimes& times() const { return times_; }

 private:
  struct Waiting {
    size_t number;
    const Request* request;
    Result* result;
  };
  struct Slot {
    std::unique_ptr<Sequence> sequence;   // null: free
    std::unique_ptr<target::State> kept;  // of the last one; rows of `kept_ids`
    std::vector<int64_t> kept_ids;
  };
  bool admit();
  void begin(const Waiting& waiting);
  int64_t reusable(const Slot& slot, const Request& request) const;
  void release(Slot& slot);
  void retire();
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
  EngineOptions options_;
  TapPlan taps_;
  std::vector<Slot> slots_;
  std::deque<Waiting> waiting_;
  size_t next_number_ = 0;
  PassTimes times_;
};

/// Runs all requests; results in the requests' order. Requests cut off by should_stop have fewer
/// tokens and no entry in `finished`. proposer == nullptr: plain decoding.
struct Run : PassTimes {
  std::vector<Result> results;
  std::vector<bool> finished;
};
Run generate(const target::Target& target, Proposer* proposer, const std::vector<Request>& requests,
             const EngineOptions& options = {});

}  // namespace dflash::decode
