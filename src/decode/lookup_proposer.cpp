// Prompt lookup: no model at all, the baseline that a drafter has to beat (DESIGN.md 7).
#include "base/error.h"
#include "decode/proposers.h"

namespace dflash::decode {
namespace {

/// Start of the latest earlier occurrence of the last `n` ids, or -1.
int64_t latest_match(std::span<const int64_t> ids, int64_t n) {
  const int64_t length = static_cast<int64_t>(ids.size());
  const std::span<const int64_t> suffix = ids.last(n);
  for (int64_t begin = length - n - 1; begin >= 0; --begin) {
    if (std::equal(suffix.begin(), suffix.end(), ids.begin() + begin)) return begin;
  }
  return -1;
}

class LookupProposer final : public Proposer {
 public:
  explicit LookupProposer(const LookupOptions& options) : options_(options) {}

  std::vector<Proposal> propose(std::span<const Sequence> sequences) override {
    std::vector<Proposal> proposals;
    proposals.reserve(sequences.size());
    for (const Sequence& sequence : sequences) proposals.emplace_back(follow(sequence));
    return proposals;
  }
  int64_t max_proposals() const override { return options_.max_proposals; }
  std::string name() const override { return "prompt lookup"; }

 private:
  /// What followed the match. Past the sequence's end the copy reads from itself, so that a text
  /// that loops is proposed as a loop.
  std::vector<int64_t> follow(const Sequence& sequence) const {
    const int64_t length = static_cast<int64_t>(sequence.ids.size());
    const int64_t count = std::min(options_.max_proposals, sequence.room);
    for (int64_t n = std::min(options_.max_ngram, length - 1); n >= 1 && count > 0; --n) {
      const int64_t begin = latest_match(sequence.ids, n);
      if (begin < 0) continue;
      std::vector<int64_t> proposal;
      for (int64_t from = begin + n; static_cast<int64_t>(proposal.size()) < count; ++from) {
        proposal.push_back(from < length ? sequence.ids[from] : proposal[from - length]);
      }
      return proposal;
    }
    return {};
  }

  LookupOptions options_;
};

}  // namespace

std::unique_ptr<Proposer> make_lookup_proposer(const LookupOptions& options) {
  if (options.max_ngram < 1 || options.max_proposals < 1) {
    fail("prompt lookup: expected max n-gram and max proposals >= 1, got {} and {}",
         options.max_ngram, options.max_proposals);
  }
  return std::make_unique<LookupProposer>(options);
}

}  // namespace dflash::decode
