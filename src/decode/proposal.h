// What a proposer offers for one sequence, and what of it can be fed to the target.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dflash::decode {

/// Draft tokens below the anchor: a chain, or a tree whose ways share their beginnings.
struct Proposal {
  Proposal() = default;
  Proposal(std::vector<int64_t> chain) : ids(std::move(chain)) {}  // NOLINT: a list is a chain
  Proposal(std::vector<int64_t> ids, std::vector<int64_t> parents)
      : ids(std::move(ids)), parents(std::move(parents)) {}

  int64_t parent(size_t node) const {
    return parents.empty() ? static_cast<int64_t>(node) - 1 : parents[node];
  }

  std::vector<int64_t> ids;
  /// Index of the node before, -1 = the anchor; a parent comes before its children. Empty: a chain.
  std::vector<int64_t> parents;
};

/// Rows of one verification: the anchor (row 0), then the proposal's nodes depth first, children in
/// the order in which they were proposed. Whatever is proposed, the rows are safe to feed: left out
/// are ids that the target does not know, ways past `room`, a second child with the same id, nodes
/// without a parent, and all but first children where the target takes chains only.
class DraftTree {
 public:
  struct Limits {
    int64_t room = 0;  // longest way
    int64_t vocab_size = 0;
    bool branches = true;
  };
  DraftTree() : DraftTree(Proposal(), {}) {}
  DraftTree(const Proposal& proposal, const Limits& limits);

  int64_t num_rows() const { return 1 + static_cast<int64_t>(ids_.size()); }
  std::span<const int64_t> draft_ids() const { return ids_; }  // of rows 1..
  int64_t depth(int64_t row) const { return depths_[row]; }    // ancestors; 0: the anchor
  /// By row, as target::Segment wants them; empty: a chain.
  std::span<const int64_t> parents() const {
    return is_chain_ ? std::span<const int64_t>() : std::span<const int64_t>(parents_);
  }
  /// Longest way that was proposed within the room, unknown ids included.
  int64_t proposed() const { return proposed_; }
  /// Row of the child that holds `token`, or -1.
  int64_t child(int64_t row, int64_t token) const;

 private:
  std::vector<int64_t> ids_, parents_, depths_;
  int64_t proposed_ = 0;
  bool is_chain_ = true;
};

}  // namespace dflash::decode
