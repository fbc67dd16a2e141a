// A DFlash drafter as a proposer (MODELS.md 4.6): contexts of committed rows only, one block a
// sequence and pass, the anchor's own feature never in its context.
#include <ATen/ops/cat.h>

#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "base/profile.h"
#include "block/blocks.h"
#include "decode/proposers.h"
#include "nn/kernels/select.h"
#include "nn/parallel_rows.h"

namespace dflash::decode {
namespace {

void expect_equal(const char* what, int64_t drafter, int64_t target) {
  if (drafter == target) return;
  fail(
      "drafter: {}: expected {} (the target's), got {}\n"
      "  hint: this drafter was trained for another target",
      what, target, drafter);
}

// What is borrowed from the target must have the drafter's size; own tables only need a row for
// every id that the target can say (they may be padded differently, FAULTS EX-12).
void check_tables(const draft::Drafter& drafter, const target::Target& target) {
  const draft::DraftSpec& spec = drafter.spec();
  const draft::OwnTables& own = drafter.own_tables();
  const target::TargetConfig& config = target.config();
  if (own.embed_VD.defined() && own.head_VD.defined()) {
    if (spec.vocab_size < target.head().num_ids) {
      expect_equal("vocabulary", spec.vocab_size, config.vocab_size);
    }
    return;
  }
  expect_equal("hidden size", spec.hidden_size, config.hidden_size);
  expect_equal("vocabulary", spec.vocab_size, config.vocab_size);
}

void check_fits(const draft::Drafter& drafter, const target::Target& target) {
  const draft::DraftSpec& spec = drafter.spec();
  const target::TargetConfig& config = target.config();
  expect_equal("target hidden size", spec.target_hidden_size, config.hidden_size);
  check_tables(drafter, target);
  if (spec.target_num_layers != 0) {
    expect_equal("target layers", spec.target_num_layers, config.num_layers);
  }
  block::check_rule(spec.rule, config.vocab_size);
  for (int64_t tap : spec.taps) {
    if (tap < -1 || tap >= config.num_layers) {
      fail("drafter: taps: expected layers in [-1, {}), got {}", config.num_layers, tap);
    }
  }
  if (!spec.target_fingerprint.empty() && !target.fingerprint().empty() &&
      spec.target_fingerprint != target.fingerprint()) {
    log_warning(
        "drafter: trained for the target {}, running with {}: the text stays the target's own, "
        "acceptance may be low",
        spec.target_fingerprint, target.fingerprint());
  }
}

void expect_draft_ids(const std::vector<int64_t>& ids, int64_t num_ids) {
  std::unordered_set<int64_t> seen;
  for (int64_t id : ids) {
    if (id < 0 || id >= num_ids || !seen.insert(id).second) {
      fail("drafter: draft vocabulary: expected distinct ids in [0, {}), got {}", num_ids, id);
    }
  }
}

class DraftProposer final : public DraftingProposer {
 public:
  DraftProposer(std::shared_ptr<const draft::Drafter> drafter, const target::Target& target,
                const DraftProposerOptions& options)
      : drafter_(std::move(drafter)),
        target_(target),
        table_(draft_table(target, *drafter_)),
        head_(draft_head(target, *drafter_)),
        first_slot_(drafter_->spec().rule.slot_shift == 1 ? 0 : 1) {
    const int64_t of_block = drafter_->spec().rule.block_size - first_slot_;
    max_proposals_ =
        options.max_proposals > 0 ? std::min(options.max_proposals, of_block) : of_block;
  }

  std::vector<Proposal> propose(std::span<const Sequence> sequences) override;
  std::vector<Slots> candidates(std::span<const Sequence> sequences, int64_t top) override;
  void observe(std::span<const Committed> committed, const at::Tensor& taps_RF) override;
  void reset(int64_t slot, int64_t rows) override {
    if (slot >= static_cast<int64_t>(contexts_.size())) {
      contexts_.resize(slot + 1);
      waiting_.resize(slot + 1);
    }
    if (rows > 0) {
      take_in({&slot, 1});
      context(slot)->rewind(rows);
    } else {
      waiting_[slot] = {};
      contexts_[slot] = drafter_->new_context();
    }
  }
  std::vector<int64_t> taps() const override { return drafter_->spec().taps; }
  int64_t max_proposals() const override { return max_proposals_; }
  std::string name() const override { return "drafter"; }

 private:
  draft::SequenceContext* context(int64_t slot) const {
    DF_ASSERT(slot >= 0 && slot < static_cast<int64_t>(contexts_.size()) && contexts_[slot],
              "slot={} was never reset", slot);
    return contexts_[slot].get();
  }

  /// Observed rows that are not in the context yet.
  struct Waiting {
    std::vector<at::Tensor> taps_RF;
    int64_t num_rows = 0;
  };
  int64_t slots_of(const Sequence& sequence) const {
    return std::min(sequence.room, max_proposals_);
  }
  void take_in(std::span<const int64_t> slots);
  at::Tensor hidden_rows(std::span<const Sequence> sequences, int64_t wanted);

  std::shared_ptr<const draft::Drafter> drafter_;
  const target::Target& target_;
  nn::Table table_;
  nn::Head head_;
  int64_t first_slot_, max_proposals_ = 0;
  std::vector<std::unique_ptr<draft::SequenceContext>> contexts_;
  std::vector<Waiting> waiting_;
};

/// The rows that the head reads, `wanted` a sequence. The block always has its full width, as in
/// training: slots past the room or the context's end are seen by the others but propose nothing.
at::Tensor DraftProposer::hidden_rows(std::span<const Sequence> sequences, int64_t wanted) {
  const profile::Range range("drafter", "propose, the rest");
  std::vector<int64_t> slots;
  for (const Sequence& sequence : sequences) slots.push_back(sequence.slot);
  take_in(slots);
  std::vector<block::DecodingAnchor> anchors;
  std::vector<draft::SequenceContext*> contexts;
  for (const Sequence& sequence : sequences) {
    const int64_t position = static_cast<int64_t>(sequence.ids.size()) - 1;
    anchors.push_back({sequence.ids.back(), position});
    contexts.push_back(context(sequence.slot));
    DF_ASSERT(contexts.back()->length() == position, "context has {} rows, anchor at {}",
              contexts.back()->length(), position);
  }
  block::Blocks blocks = block::decoding_blocks(drafter_->spec().rule, anchors);
  const int64_t num_blocks = blocks.num_blocks, block_size = blocks.block_size;
  const at::Tensor ids_NK =
      at::from_blob(blocks.ids_NK.data(), {num_blocks, block_size}, at::kLong);
  const at::Tensor hidden_NKD = drafter_->forward(contexts, blocks, table_.embed(ids_NK));
  return hidden_NKD.narrow(1, first_slot_, wanted).reshape({num_blocks * wanted, -1});
}

std::vector<Proposal> DraftProposer::propose(std::span<const Sequence> sequences) {
  int64_t wanted = 0;
  for (const Sequence& sequence : sequences) wanted = std::max(wanted, slots_of(sequence));
  const at::Tensor drafts_R = head_.argmax(hidden_rows(sequences, wanted)).contiguous();
  const int64_t* drafts = drafts_R.const_data_ptr<int64_t>();
  std::vector<Proposal> proposals;
  for (const Sequence& sequence : sequences) {
    proposals.emplace_back(std::vector<int64_t>(drafts, drafts + slots_of(sequence)));
    drafts += wanted;
  }
  return proposals;
}

/// The largest logits of a row as shares of the whole, largest first; ties by id. NaN: none.
std::vector<Candidate> likeliest(std::span<const float> logits_V, int64_t top) {
  const int64_t width = nn::kernels::round_up(static_cast<int64_t>(logits_V.size()), 16);
  std::vector<float> weights(logits_V.begin(), logits_V.end());
  weights.resize(width);
  float peak = 0, sum = 0;
  nn::kernels::current().softmax_row(weights.data(), width, 0,
                                     static_cast<int64_t>(logits_V.size()), &peak, &sum);
  std::vector<Candidate> best;
  float least = 0;  // of a full list
  for (size_t id = 0; id < logits_V.size(); ++id) {
    if (!(weights[id] > least)) continue;
    const double share = weights[id] / sum;
    const auto after = std::ranges::find_if(
        best, [share](const Candidate& one) { return one.probability < share; });
    best.insert(after, {static_cast<int64_t>(id), share});
    if (static_cast<int64_t>(best.size()) > top) best.pop_back();
    if (static_cast<int64_t>(best.size()) == top) least = weights[best.back().id];
  }
  return best;
}

std::vector<DraftingProposer::Slots> DraftProposer::candidates(std::span<const Sequence> sequences,
                                                               int64_t top) {
  int64_t wanted = 0;
  for (const Sequence& sequence : sequences) wanted = std::max(wanted, slots_of(sequence));
  const at::Tensor logits_RV = head_.logits(hidden_rows(sequences, wanted)).contiguous();
  const int64_t vocab = logits_RV.size(1), rows = logits_RV.size(0);
  std::vector<std::vector<Candidate>> of_rows(rows);
  nn::parallel_rows(rows, vocab, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = logits_RV.const_data_ptr<float>() + r * vocab;
      of_rows[r] = likeliest({row, static_cast<size_t>(vocab)}, top);
    }
  });
  std::vector<Slots> all;
  for (size_t n = 0; n < sequences.size(); ++n) {
    const auto first = of_rows.begin() + static_cast<int64_t>(n) * wanted;
    all.emplace_back(first, first + slots_of(sequences[n]));
  }
  if (!head_.id_V.defined()) return all;
  for (Slots& slots : all) {
    for (std::vector<Candidate>& slot : slots) {
      for (Candidate& one : slot) one.id = head_.id_V.const_data_ptr<int64_t>()[one.id];
    }
  }
  return all;
}

/// Rows of single passes wait for the next draft, many at once go in right away: passes without
/// drafts cost next to nothing that way.
void DraftProposer::observe(std::span<const Committed> committed, const at::Tensor& taps_RF) {
  constexpr int64_t kMany = 32;
  int64_t first = 0;
  std::vector<int64_t> full;
  for (const Committed& part : committed) {
    Waiting& waiting = waiting_.at(part.slot);
    DF_ASSERT(context(part.slot)->length() + waiting.num_rows == part.first_position,
              "context has {} + {} rows, got row {}", context(part.slot)->length(),
              waiting.num_rows, part.first_position);
    waiting.taps_RF.push_back(taps_RF.narrow(0, first, part.num_rows).clone());
    waiting.num_rows += part.num_rows;
    first += part.num_rows;
    if (waiting.num_rows >= kMany) full.push_back(part.slot);
  }
  take_in(full);
}

void DraftProposer::take_in(std::span<const int64_t> slots) {
  const profile::Range range("drafter", "observe, the rest");
  std::vector<draft::SequenceContext*> contexts;
  std::vector<int64_t> num_rows, pos_R;
  std::vector<at::Tensor> pieces;
  for (const int64_t slot : slots) {
    Waiting& waiting = waiting_[slot];
    if (waiting.num_rows == 0) continue;
    contexts.push_back(context(slot));
    num_rows.push_back(waiting.num_rows);
    for (int64_t r = 0; r < waiting.num_rows; ++r) pos_R.push_back(contexts.back()->length() + r);
    std::ranges::move(waiting.taps_RF, std::back_inserter(pieces));
    waiting = {};
  }
  if (pieces.empty()) return;
  const int64_t count = static_cast<int64_t>(pos_R.size());
  drafter_->append(contexts, num_rows, pieces.size() == 1 ? pieces[0] : at::cat(pieces),
                   at::from_blob(pos_R.data(), {count}, at::kLong));
}

}  // namespace

nn::Table draft_table(const target::Target& target, const draft::Drafter& drafter) {
  const at::Tensor& own_VD = drafter.own_tables().embed_VD;
  return own_VD.defined() ? nn::Table{own_VD} : target.table();
}

nn::Head draft_head(const target::Target& target, const draft::Drafter& drafter) {
  return draft_head(target, drafter.spec(), drafter.own_tables().head_VD);
}

nn::Head draft_head(const target::Target& target, const draft::DraftSpec& spec,
                    const at::Tensor& own_VD) {
  const std::vector<int64_t>& ids = spec.draft_ids;
  const nn::Head& full = target.head();
  if (ids.empty() && !own_VD.defined()) return full;
  expect_draft_ids(ids, full.num_ids);
  if (!own_VD.defined()) return target.head_of(ids);
  nn::Head head;
  // Rows past the target's ids (padding) are never proposed.
  head.num_ids = ids.empty() ? full.num_ids : static_cast<int64_t>(ids.size());
  if (!ids.empty()) head.id_V = at::tensor(ids, at::kLong);
  head.linear = nn::Linear(own_VD, {}, full.linear.compute());
  head.linear.pack();
  return head;
}

std::unique_ptr<DraftingProposer> make_draft_proposer(std::shared_ptr<const draft::Drafter> drafter,
                                                      const target::Target& target,
                                                      const DraftProposerOptions& options) {
  check_fits(*drafter, target);
  return std::make_unique<DraftProposer>(std::move(drafter), target, options);
}

}  // namespace dflash::decode
