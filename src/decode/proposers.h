// The proposers of the product: a DFlash drafter, prompt lookup (n-gram) as the baseline, and both
// together as one tree.
#pragma once

#include <memory>
#include <optional>

#include "decode/engine.h"
#include "decode/ngram_model.h"
#include "draft/drafter.h"
#include "nn/head.h"

namespace dflash::decode {

/// Head over the drafter's vocabulary: its own, or the target's, or the target's rows of draft_ids.
nn::Head draft_head(const target::Target& target, const draft::Drafter& drafter);
/// The same for a drafter without an own head (own_VD undefined), or with one of these rows.
nn::Head draft_head(const target::Target& target, const draft::DraftSpec& spec,
                    const at::Tensor& own_VD = {});
/// The table that embeds a block: the drafter's own, or the target's.
nn::Table draft_table(const target::Target& target, const draft::Drafter& drafter);

struct DraftProposerOptions {
  int64_t max_proposals = 0;  // 0: all of a block (block_size - 1, anchor-first: block_size)
};

/// A drafter's proposer, which also says what else it held likely.
class DraftingProposer : public Proposer {
 public:
  /// By slot of one block, at most the sequence's room: the likeliest ids, likeliest first, with
  /// their shares of the whole softmax.
  using Slots = std::vector<std::vector<Candidate>>;
  virtual std::vector<Slots> candidates(std::span<const Sequence> sequences, int64_t top) = 0;
};

/// Context per slot from the taps of committed rows, argmax drafts (SAM-02: slots are marginals, so
/// sampling them one by one proposes worse blocks). `target` must outlive it. Errors: taps, sizes
/// or vocabulary that do not fit the target.
std::unique_ptr<DraftingProposer> make_draft_proposer(std::shared_ptr<const draft::Drafter> drafter,
                                                      const target::Target& target,
                                                      const DraftProposerOptions& options = {});

/// Longest suffix n-gram (max_ngram..1) found earlier in the sequence, the latest occurrence;
/// proposes what followed it.
struct LookupOptions {
  int64_t max_ngram = 3, max_proposals = 7;
};
std::unique_ptr<Proposer> make_lookup_proposer(const LookupOptions& options = {});

struct CombinedOptions {
  bool lookup = true;  // n-grams of the text, beside the drafter or alone
  /// Children of a node from the drafter's slot, and as many from the text; 1: two chains that
  /// share their beginning.
  int64_t top = 8;
  /// Drafts, and only as many, where they pay by what passes were measured to cost and what drafts
  /// were accepted; never changes the text. Off: always all.
  bool adaptive = true;
  int64_t max_rows = 16;               // of a sequence in one pass, anchor included
  bool tiles = false;                  // 16 rows cost about one, until passes were measured
  std::function<double()> clock = {};  // seconds; empty: thread_seconds
};

/// Rows of one sequence that cost about what one costs: 16 with tiles (AMX), else 8.
int64_t free_rows(nn::Compute compute);

/// The best tree of the drafter's slots and of the text's own n-grams, their ways merged (targets
/// that take chains only: its likeliest chain). `drafter` may be null: n-grams alone.
std::unique_ptr<Proposer> make_combined_proposer(std::unique_ptr<DraftingProposer> drafter,
                                                 const CombinedOptions& options = {});

}  // namespace dflash::decode
