#include "decode/tree_search.h"

#include <algorithm>
#include <queue>

namespace dflash::decode {
namespace {

/// Order of the heap: likelier first; ties by age, so that equal searches give equal trees.
struct Waiting {
  TreeSearch::Node node;
  int64_t age = 0;
  bool operator<(const Waiting& other) const {
    return node.probability != other.node.probability ? node.probability < other.node.probability
                                                      : age > other.age;
  }
};

}  // namespace

TreeSearch::TreeSearch(std::span<const Sequence> sequences, const Children& children,
                       const Limits& limits)
    : num_sequences_(sequences.size()) {
  std::priority_queue<Waiting> open;
  int64_t age = 0;
  const auto open_children = [&](const Node& at, int64_t index) {
    if (at.depth >= sequences[at.sequence].room) return;
    std::vector<Candidate> next = children(at.sequence, way_to(index));
    if (!sequences[at.sequence].branches && !next.empty()) {
      next = {*std::ranges::max_element(next, {}, &Candidate::probability)};
    }
    for (const Candidate& one : next) {
      const double probability = at.probability * std::min(one.probability, 1.0);
      if (!(probability > limits.min_probability)) continue;  // not a number: no
      open.push({{at.sequence, index, one.id, at.depth + 1, probability}, age++});
    }
  };
  for (size_t s = 0; s < sequences.size(); ++s) open_children({s, -1, 0, 0, 1.0}, -1);
  while (!open.empty() && static_cast<int64_t>(nodes_.size()) < limits.max_nodes) {
    nodes_.push_back(open.top().node);
    open.pop();
    open_children(Node(nodes_.back()), static_cast<int64_t>(nodes_.size()) - 1);
  }
}

std::vector<int64_t> TreeSearch::way_to(int64_t node) const {
  std::vector<int64_t> way;
  for (; node >= 0; node = nodes_[node].parent) way.push_back(nodes_[node].id);
  std::ranges::reverse(way);
  return way;
}

double TreeSearch::expected(int64_t count) const {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += nodes_[i].probability;
  return sum;
}

std::vector<Proposal> TreeSearch::proposals(int64_t count) const {
  std::vector<Proposal> all(num_sequences_);
  std::vector<int64_t> place(nodes_.size(), -1);  // within the sequence's own proposal
  for (int64_t i = 0; i < count; ++i) {
    Proposal& own = all[nodes_[i].sequence];
    place[i] = static_cast<int64_t>(own.ids.size());
    own.ids.push_back(nodes_[i].id);
    own.parents.push_back(nodes_[i].parent < 0 ? -1 : place[nodes_[i].parent]);
  }
  return all;
}

}  // namespace dflash::decode
