// The proposers of the product: a DFlash drafter, and prompt lookup (n-gram) as the baseline.
#pragma once

#include <memory>
#include <optional>

#include "decode/engine.h"
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

/// Context per slot from the taps of committed rows, argmax drafts (SAM-02: slots are marginals, so
/// sampling them one by one proposes worse blocks). `target` must outlive it. Errors: taps, sizes
/// or vocabulary that do not fit the target.
std::unique_ptr<Proposer> make_draft_proposer(std::shared_ptr<const draft::Drafter> drafter,
                                              const target::Target& target,
                                              const DraftProposerOptions& options = {});

/// Longest suffix n-gram (max_ngram..1) found earlier in the sequence, the latest occurrence;
/// proposes what followed it.
struct LookupOptions {
  int64_t max_ngram = 3, max_proposals = 7;
};
std::unique_ptr<Proposer> make_lookup_proposer(const LookupOptions& options = {});

}  // namespace dflash::decode
