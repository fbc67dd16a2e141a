// The free rows of a verification filled: the drafter's slots and the text's own n-grams as one
// tree, as wide as pays.
#include <algorithm>

#include "base/error.h"
#include "decode/pass_costs.h"
#include "decode/pay.h"
#include "decode/proposers.h"
#include "decode/tree_search.h"
#include "nn/gemm_bf16.h"

namespace dflash::decode {
namespace {

/// What is remembered of the sequence in one slot of the engine.
struct Track {
  NgramModel ngrams;
  DraftGain gain;
  Belief belief;
  int64_t length = 0;               // of the ids that the last proposal followed; 0: none yet
  DraftingProposer::Slots drafted;  // for the tokens after them; empty: the drafter was not asked
};

class CombinedProposer final : public Proposer {
 public:
  CombinedProposer(std::unique_ptr<DraftingProposer> drafter, const CombinedOptions& options)
      : drafter_(std::move(drafter)), options_(options) {
    if (!options_.clock) options_.clock = thread_seconds;
  }

  std::vector<Proposal> propose(std::span<const Sequence> sequences) override;
  void observe(std::span<const Committed> committed, const at::Tensor& taps_RF) override {
    drafter_->observe(committed, taps_RF);
  }
  void reset(int64_t slot, int64_t rows) override {
    if (slot >= static_cast<int64_t>(tracks_.size())) tracks_.resize(slot + 1);
    tracks_[slot] = Track();
    tracks_[slot].gain = gain_.as_prior();
    tracks_[slot].belief = belief_.as_prior();
    probes_.hurry();
    if (drafter_) drafter_->reset(slot, rows);
  }
  std::vector<int64_t> taps() const override {
    return drafter_ ? drafter_->taps() : std::vector<int64_t>();
  }
  void measure(const PassCost& cost) override { costs_.add(cost.rows, cost.seconds); }
  int64_t max_proposals() const override { return options_.max_rows - 1; }
  std::string name() const override;

 private:
  using Drafted = std::vector<DraftingProposer::Slots>;
  void learn(std::span<const Sequence> sequences);
  TreeSearch search(std::span<const Sequence> sequences, const Drafted& drafted) const;
  std::vector<Candidate> children(const Track& track, std::span<const int64_t> way,
                                  const DraftingProposer::Slots* slots) const;
  /// A pass: the first `count` nodes of a search, what it should commit, what it should cost.
  struct Width {
    int64_t count = 0;
    double tokens = 0, seconds = 0;
  };
  Width best_width(const TreeSearch& search, int64_t num_sequences, double drafting) const;
  double unknown(const TreeSearch& without, size_t sequence) const;
  double draft_seconds(int64_t num_sequences) const {
    constexpr double kUsual = 0.25;  // of a pass
    return draft_costs_.known() ? draft_costs_.of(num_sequences)
                                : kUsual * costs_.of(num_sequences);
  }
  bool wants_drafter(std::span<const Sequence> sequences, const TreeSearch& without,
                     const Width& width);
  void note_gain(std::span<const Sequence> sequences, const TreeSearch& without,
                 const Width& before, const Width& now);

  std::unique_ptr<DraftingProposer> drafter_;
  CombinedOptions options_;
  std::vector<Track> tracks_;  // by slot
  DraftGain gain_;             // of all sequences, the past ones too
  Belief belief_;
  Probes probes_;
  // Of passes by rows, of drafting by sequences.
  PassCosts costs_{options_.tiles}, draft_costs_{options_.tiles};
};

std::string CombinedProposer::name() const {
  if (!drafter_) return options_.top > 1 ? "lookup tree" : "lookup chain";
  const std::string parts = options_.lookup ? "drafter and lookup" : "drafter";
  return parts + (options_.top > 1 ? " tree" : "") + (options_.adaptive ? ", adaptive" : "");
}

/// What the last pass committed, before anything new is proposed.
void CombinedProposer::learn(std::span<const Sequence> sequences) {
  for (const Sequence& sequence : sequences) {
    Track& track = tracks_.at(sequence.slot);
    if (options_.lookup) track.ngrams.extend(sequence.ids);
    if (track.length == 0) continue;
    const auto committed = sequence.ids.subspan(track.length);
    for (size_t k = 0; k < std::min(track.drafted.size(), committed.size()); ++k) {
      double mass = 0;
      for (const Candidate& one : track.drafted[k]) mass += one.probability;
      const bool hit = std::ranges::count(track.drafted[k], committed[k], &Candidate::id) > 0;
      track.belief.add(k, mass, hit);
      belief_.add(k, mass, hit);
    }
  }
  for (Track& track : tracks_) track.length = 0;
}

/// Followers that the text knows, and the drafter's for the share of the time that it does not.
std::vector<Candidate> CombinedProposer::children(const Track& track, std::span<const int64_t> way,
                                                  const DraftingProposer::Slots* slots) const {
  std::vector<Candidate> all;
  if (options_.lookup) all = track.ngrams.next(way);
  if (static_cast<int64_t>(all.size()) > options_.top) all.resize(options_.top);
  if (!slots || way.size() >= slots->size()) return all;
  double unknown = 1;
  for (const Candidate& one : all) unknown -= one.probability;
  unknown *= track.belief.factor(way.size());
  for (const Candidate& one : (*slots)[way.size()]) {
    const auto same = std::ranges::find(all, one.id, &Candidate::id);
    if (same != all.end()) {
      same->probability += unknown * one.probability;
    } else {
      all.push_back({one.id, unknown * one.probability});
    }
  }
  return all;
}

TreeSearch CombinedProposer::search(std::span<const Sequence> sequences,
                                    const Drafted& drafted) const {
  constexpr double kHopeless = 1e-4;
  std::vector<TreeSearch::Sequence> asked;
  for (const Sequence& sequence : sequences) asked.push_back({sequence.room, sequence.branches});
  const auto children_of = [&](size_t s, std::span<const int64_t> way) {
    return children(tracks_[sequences[s].slot], way, drafted.empty() ? nullptr : &drafted[s]);
  };
  const int64_t count = static_cast<int64_t>(sequences.size());
  return TreeSearch(asked, children_of,
                    {.max_nodes = count * (options_.max_rows - 1),
                     .min_probability = options_.adaptive ? kHopeless : 0});
}

/// The best of the counts that fill rows of one kind: most tokens a second, `drafting` included.
CombinedProposer::Width CombinedProposer::best_width(const TreeSearch& search,
                                                     int64_t num_sequences, double drafting) const {
  const int64_t all = static_cast<int64_t>(search.nodes().size());
  const auto width_of = [&](int64_t count) -> Width {
    return {count, static_cast<double>(num_sequences) + search.expected(count),
            costs_.of(num_sequences + count)};
  };
  if (!options_.adaptive) return width_of(all);
  Width best = width_of(0);
  for (int64_t rows = num_sequences; rows < num_sequences + all;) {
    rows = std::min(PassCosts::widest_alike(rows + 1), num_sequences + all);
    const Width wider = width_of(rows - num_sequences);
    if (wider.tokens * (best.seconds + drafting) > best.tokens * (wider.seconds + drafting)) {
      best = wider;
    }
  }
  return best;
}

/// How much of the sequence's next token the n-grams leave open.
double CombinedProposer::unknown(const TreeSearch& without, size_t sequence) const {
  double left = 1;
  for (const TreeSearch::Node& node : without.nodes()) {
    if (node.sequence == sequence && node.depth == 1) left -= node.probability;
  }
  return std::max(left, 0.0);
}

bool CombinedProposer::wants_drafter(std::span<const Sequence> sequences, const TreeSearch& without,
                                     const Width& width) {
  if (!options_.adaptive) return true;
  const int64_t num_sequences = static_cast<int64_t>(sequences.size());
  const double plain = costs_.of(num_sequences);
  double tokens = width.tokens;
  double seconds = width.seconds + draft_seconds(num_sequences);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const DraftGain& gain = tracks_[sequences[s].slot].gain;
    tokens += unknown(without, s) * gain.tokens();
    seconds += unknown(without, s) * gain.passes() * plain;
  }
  return probes_.decide(tokens * width.seconds > width.tokens * seconds);
}

/// What the drafter changed in this pass, shared out evenly.
void CombinedProposer::note_gain(std::span<const Sequence> sequences, const TreeSearch& without,
                                 const Width& before, const Width& now) {
  const double plain = costs_.of(static_cast<int64_t>(sequences.size()));
  const double tokens = now.tokens - before.tokens;
  const double passes = (now.seconds - before.seconds) / plain;
  double all = 0;
  for (size_t s = 0; s < sequences.size(); ++s) all += unknown(without, s);
  for (size_t s = 0; s < sequences.size() && all > 0; ++s) {
    const double own = unknown(without, s), share = own / all;
    for (DraftGain* gain : {&tracks_[sequences[s].slot].gain, &gain_}) {
      gain->add(own, share * tokens, share * passes);
    }
  }
}

std::vector<Proposal> CombinedProposer::propose(std::span<const Sequence> sequences) {
  learn(sequences);
  const int64_t num_sequences = static_cast<int64_t>(sequences.size());
  TreeSearch found = search(sequences, {});
  Width width = best_width(found, num_sequences, 0);
  const bool drafts = drafter_ && wants_drafter(sequences, found, width);
  Drafted drafted;
  if (drafts) {
    const double start = options_.clock();
    drafted = drafter_->candidates(sequences, options_.top);
    draft_costs_.add(num_sequences, options_.clock() - start);
    const TreeSearch without = std::exchange(found, search(sequences, drafted));
    const Width before =
        std::exchange(width, best_width(found, num_sequences, draft_seconds(num_sequences)));
    note_gain(sequences, without, before, width);
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    Track& track = tracks_[sequences[s].slot];
    track.length = static_cast<int64_t>(sequences[s].ids.size());
    track.drafted = drafts ? std::move(drafted[s]) : DraftingProposer::Slots();
  }
  return found.proposals(width.count);
}

}  // namespace

int64_t free_rows(nn::Compute compute) {
  return nn::tile_products_supported(compute) ? 16 : 8;
}

std::unique_ptr<Proposer> make_combined_proposer(std::unique_ptr<DraftingProposer> drafter,
                                                 const CombinedOptions& options) {
  if (options.top < 1 || options.max_rows < 2) {
    fail("drafts: expected children >= 1 and rows >= 2, got {} and {}", options.top,
         options.max_rows);
  }
  if (!drafter && !options.lookup) fail("drafts: expected a drafter, lookup or both, got none");
  return std::make_unique<CombinedProposer>(std::move(drafter), options);
}

}  // namespace dflash::decode
