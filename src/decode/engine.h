// Lossless decoding of many sequences at once: draft, verify, accept, commit. Ids in, ids out. The
// text equals plain decoding token for token, greedy and sampled, alone or in a batch, whatever the
// proposer does (MODELS.md 4.6, 7; DESIGN.md 2.3).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/acceptance.h"
#include "decode/sampler.h"
#include "target/target.h"

namespace dflash::decode {

struct Request {
  std::vector<int64_t> prompt = {};
  Sampling sampling = {};  // greedy by default
  int64_t max_new_tokens = 256;
  std::vector<int64_t> stop_ids = {};  // generation ends after the first of these (it is kept)
};

enum class Finish { kStop, kLength, kContext };
/// "stop", "length", "context": the one spelling in files and reports.
const char* finish_name(Finish finish);

/// Tokens committed by one pass; `accepted` of them were drafted, the last may be the bonus token.
struct Commit {
  size_t request = 0;
  std::vector<int64_t> tokens;
  int64_t proposed = 0, accepted = 0;
};

struct Result {
  std::vector<int64_t> tokens;  // without the prompt, stop token included
  Finish finish = Finish::kLength;
  AcceptanceCounts counts;  // verify passes; the prefill and its token are not counted
};

/// Proposes draft tokens for sequences between passes. A proposer may be wrong, never unsafe.
class Proposer {
 public:
  virtual ~Proposer() = default;

  struct Sequence {
    std::span<const int64_t> ids;  // prompt and committed tokens; the last one is the anchor
    int64_t slot = 0;              // stable number of the engine's slot while the sequence lives
    int64_t room = 0;              // at most so many proposals can be used
  };
  /// One list a sequence, each at most `room` long (empty: plain step).
  virtual std::vector<std::vector<int64_t>> propose(std::span<const Sequence> sequences) = 0;
  /// Target taps of rows that were committed, in position order (only when taps() is not empty).
  struct Committed {
    int64_t slot = 0;
    int64_t first_position = 0, num_rows = 0;  // rows of taps_RF one after the other
  };
  virtual void observe(std::span<const Committed> committed, const at::Tensor& taps_RF);
  /// A new sequence took the slot.
  virtual void reset(int64_t slot);
  virtual std::vector<int64_t> taps() const { return {}; }
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
  std::function<bool()> stop_admitting = {};  // true: waiting requests are not begun any more
  std::function<bool()> should_stop = {};     // polled between passes; may be empty
};

/// Runs all requests; results in the requests' order. Requests cut off by should_stop have fewer
/// tokens and no entry in `finished`. proposer == nullptr: plain decoding.
struct Run {
  std::vector<Result> results;
  std::vector<bool> finished;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_tokens = 0;  // committed after the prefills' first tokens
};
Run generate(const target::Target& target, Proposer* proposer, const std::vector<Request>& requests,
             const EngineOptions& options = {});

}  // namespace dflash::decode
