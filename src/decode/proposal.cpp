#include "decode/proposal.h"

#include <algorithm>

namespace dflash::decode {
namespace {

/// Nodes by parent (index + 1, so that the anchor is 0), in the order of the proposal.
std::vector<std::vector<int64_t>> children_of(const Proposal& proposal) {
  const int64_t count = static_cast<int64_t>(proposal.ids.size());
  std::vector<std::vector<int64_t>> children(proposal.ids.size() + 1);
  if (!proposal.parents.empty() && proposal.parents.size() != proposal.ids.size()) return children;
  for (int64_t node = 0; node < count; ++node) {
    const int64_t parent = proposal.parent(node);
    if (parent >= -1 && parent < node) children[parent + 1].push_back(node);
  }
  return children;
}

}  // namespace

DraftTree::DraftTree(const Proposal& proposal, const Limits& limits) : parents_{-1}, depths_{0} {
  // Nodes that lead the same way become one, the first of them.
  struct Merged {
    int64_t id, depth;
    std::vector<size_t> children;
  };
  std::vector<Merged> merged = {{-1, 0, {}}};
  const auto merge = [&](size_t parent, int64_t id) {
    for (const size_t child : merged[parent].children) {
      if (merged[child].id == id) return child;
    }
    merged[parent].children.push_back(merged.size());
    merged.push_back({id, merged[parent].depth + 1, {}});
    return merged.size() - 1;
  };
  const auto children = children_of(proposal);
  std::vector<size_t> place(proposal.ids.size() + 1, 0);  // by node + 1
  for (size_t at = 0; at < children.size(); ++at) {
    if (at > 0 && place[at] == 0) continue;  // hangs on nothing
    if (merged[place[at]].depth >= limits.room) continue;
    for (const int64_t node : children[at]) {
      if (!limits.branches && node != children[at].front()) break;
      place[node + 1] = merge(place[at], proposal.ids[node]);
      proposed_ = std::max(proposed_, merged[place[node + 1]].depth);
    }
  }
  struct Visit {
    size_t at;
    int64_t parent_row;
  };
  std::vector<Visit> open = {{0, -1}};
  while (!open.empty()) {
    const auto [at, parent_row] = open.back();
    open.pop_back();
    const Merged& node = merged[at];
    if (at > 0) {
      if (node.id < 0 || node.id >= limits.vocab_size) continue;
      is_chain_ = is_chain_ && parent_row == num_rows() - 1;
      ids_.push_back(node.id);
      parents_.push_back(parent_row);
      depths_.push_back(node.depth);
    }
    for (size_t i = node.children.size(); i-- > 0;) {
      open.push_back({node.children[i], num_rows() - 1});
    }
  }
}

int64_t DraftTree::child(int64_t row, int64_t token) const {
  for (int64_t at = row + 1; at < num_rows(); ++at) {
    if (parents_[at] == row && ids_[at - 1] == token) return at;
  }
  return -1;
}

}  // namespace dflash::decode
