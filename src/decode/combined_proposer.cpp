// The free rows of a verification filled: the drafter's slots and the text's own n-grams as one
// tree, as wide as pays.
#include <algorithm>

#include "base/error.h"
#include "decode/pass_costs.h"
#include "decode/pay.h"
#include "decode/proposers.h"
#include "decode/tree_search.h"

namespace dflash::decode {
namespace {

/// What is remembered of the sequence in one slot of the engine.
struct Track {
  NgramModel ngrams;
  DraftGain gain;
  Belief belief;
  Probes probes;
  int64_t length = 0;              // of the ids that the last proposal followed; 0: none yet
  std::vector<Candidate> drafted;  // for the next token; empty: the drafter was not asked
  int64_t bin = 0;
  double expected = 0;  // tokens without the drafter
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
    tracks_[slot].gain = pooled_.as_prior();
    if (drafter_) drafter_->reset(slot, rows);
  }
  std::vector<int64_t> taps() const override {
    return drafter_ ? drafter_->taps() : std::vector<int64_t>();
  }
  void measure(const PassCost& cost) override {
    costs_.add(cost.rows, cost.seconds);
    pass_rows_ = cost.rows;
  }
  int64_t max_proposals() const override { return options_.max_rows - 1; }
  std::string name() const override;

 private:
  using Drafted = std::vector<DraftingProposer::Slots>;
  void learn(std::span<const Sequence> sequences);
  TreeSearch search(std::span<const Sequence> sequences, const Drafted& drafted) const;
  std::vector<Candidate> children(const Track& track, std::span<const int64_t> way,
                                  const DraftingProposer::Slots* slots) const;
  int64_t best_count(const TreeSearch& search, int64_t num_sequences) const;
  double value(double tokens, int64_t rows) const {
    return tokens - rate_.value() * costs_.of(rows);
  }
  bool wants_drafter(std::span<const Sequence> sequences, const TreeSearch& without, int64_t count);

  std::unique_ptr<DraftingProposer> drafter_;
  CombinedOptions options_;
  std::vector<Track> tracks_;  // by slot
  DraftGain pooled_;
  PassCosts costs_, draft_costs_;  // of passes by rows, of drafting by sequences
  Rate rate_;
  int64_t pass_rows_ = 0;  // of the last pass; 0: not measured
  bool drafted_ = false;   // for the last pass
};

std::string CombinedProposer::name() const {
  if (!drafter_) return options_.top > 1 ? "lookup tree" : "lookup chain";
  const std::string parts = options_.lookup ? "drafter and lookup" : "drafter";
  return parts + (options_.top > 1 ? " tree" : "") + (options_.adaptive ? ", adaptive" : "");
}

/// What the last pass committed, before anything new is proposed.
void CombinedProposer::learn(std::span<const Sequence> sequences) {
  int64_t tokens = 0, known = 0, asked = 0;
  for (const Track& track : tracks_) asked += track.length > 0 ? 1 : 0;
  for (const Sequence& sequence : sequences) {
    Track& track = tracks_.at(sequence.slot);
    const int64_t length = static_cast<int64_t>(sequence.ids.size());
    if (options_.lookup) track.ngrams.extend(sequence.ids);
    if (track.length == 0) continue;
    known += 1;
    tokens += length - track.length;
    if (track.drafted.empty()) continue;
    double mass = 0;
    for (const Candidate& one : track.drafted) mass += one.probability;
    const int64_t next = sequence.ids[track.length];
    track.belief.add(mass, std::ranges::count(track.drafted, next, &Candidate::id) > 0);
    const double gained = static_cast<double>(length - track.length) - track.expected;
    track.gain.add(track.bin, gained);
    pooled_.add(track.bin, gained);
  }
  // A sequence that ended took its last tokens along. Usual costs, since the choices to come are
  // weighed by them too: a slow moment is nobody's fault.
  if (known == asked && known > 0 && pass_rows_ > 0) {
    rate_.add(static_cast<double>(tokens),
              costs_.of(pass_rows_) + (drafted_ ? draft_costs_.of(asked) : 0));
  }
  pass_rows_ = 0;
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
  unknown *= track.belief.factor();
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

/// Nodes worth their rows: the best of the counts that fill rows of one kind.
int64_t CombinedProposer::best_count(const TreeSearch& search, int64_t num_sequences) const {
  const int64_t all = static_cast<int64_t>(search.nodes().size());
  if (!options_.adaptive) return all;
  int64_t best = 0;
  double most = value(0, num_sequences);
  for (int64_t rows = num_sequences; rows < num_sequences + all;) {
    rows = std::min(PassCosts::widest_alike(rows + 1), num_sequences + all);
    const int64_t count = rows - num_sequences;
    const double worth = value(search.expected(count), rows);
    if (worth > most) best = count, most = worth;
  }
  return best;
}

/// Also notes for each sequence what `count` nodes without the drafter should give.
bool CombinedProposer::wants_drafter(std::span<const Sequence> sequences, const TreeSearch& without,
                                     int64_t count) {
  const int64_t num_sequences = static_cast<int64_t>(sequences.size());
  std::vector<double> expected(sequences.size(), 1.0), known(sequences.size(), 0.0);
  for (int64_t i = 0; i < static_cast<int64_t>(without.nodes().size()); ++i) {
    const TreeSearch::Node& node = without.nodes()[i];
    if (i < count) expected[node.sequence] += node.probability;
    if (node.depth == 1) known[node.sequence] += node.probability;
  }
  double gain = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    Track& track = tracks_[sequences[s].slot];
    track.expected = expected[s];
    track.bin = DraftGain::bin_of(known[s]);
    gain += track.gain.hoped(track.bin);
  }
  if (!options_.adaptive) return true;
  const int64_t rows = num_sequences + count;
  const int64_t wider = std::max(rows, num_sequences == 1 ? options_.max_rows : 2 * num_sequences);
  const double cost = draft_costs_.of(num_sequences) + costs_.of(wider) - costs_.of(rows);
  const bool pays = gain > rate_.value() * cost;
  int64_t votes = 0;
  for (const Sequence& sequence : sequences) {
    votes += tracks_[sequence.slot].probes.decide(pays) ? 1 : 0;
  }
  return 2 * votes > num_sequences;
}

std::vector<Proposal> CombinedProposer::propose(std::span<const Sequence> sequences) {
  learn(sequences);
  const int64_t num_sequences = static_cast<int64_t>(sequences.size());
  TreeSearch found = search(sequences, {});
  int64_t count = best_count(found, num_sequences);
  drafted_ = drafter_ && wants_drafter(sequences, found, count);
  Drafted drafted;
  if (drafted_) {
    const double before = options_.clock();
    drafted = drafter_->candidates(sequences, options_.top);
    draft_costs_.add(num_sequences, options_.clock() - before);
    found = search(sequences, drafted);
    count = best_count(found, num_sequences);
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    Track& track = tracks_[sequences[s].slot];
    track.length = static_cast<int64_t>(sequences[s].ids.size());
    track.drafted.clear();
    if (drafted_ && !drafted[s].empty()) track.drafted = drafted[s][0];
  }
  return found.proposals(count);
}

}  // namespace

int64_t free_rows(nn::Compute compute) {
  return compute == nn::Compute::kBF16 && nn::cpu_isa() == nn::Isa::kAmx ? 16 : 8;
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
