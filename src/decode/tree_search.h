// The best tree of so many drafts: nodes of one or several sequences in the order of the
// probability of the way that leads to them (best first, DDTree: arXiv 2604.12989).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "decode/ngram_model.h"
#include "decode/proposal.h"

namespace dflash::decode {

class TreeSearch {
 public:
  struct Sequence {
    int64_t room = 0;      // longest way
    bool branches = true;  // off: the likeliest chain
  };
  /// Distinct ids with the probabilities that each follows the way, in any order.
  using Children =
      std::function<std::vector<Candidate>(size_t sequence, std::span<const int64_t> way)>;
  struct Limits {
    int64_t max_nodes = 0;         // of all sequences together
    double min_probability = 0.0;  // of a node's whole way
  };
  TreeSearch(std::span<const Sequence> sequences, const Children& children, const Limits& limits);

  struct Node {
    size_t sequence = 0;
    int64_t parent = -1;  // among all nodes
    int64_t id = 0, depth = 0;
    double probability = 0;  // of the whole way
  };
  /// Never less likely first, so parents before children.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Drafts that the first `count` nodes should get accepted, of all sequences together.
  double expected(int64_t count) const;
  /// The first `count` nodes as one proposal a sequence.
  std::vector<Proposal> proposals(int64_t count) const;

 private:
  std::vector<int64_t> way_to(int64_t node) const;

  size_t num_sequences_;
  std::vector<Node> nodes_;
};

}  // namespace dflash::decode
