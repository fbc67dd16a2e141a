// Proposers of every character. All of them watch the taps they are given: before each proposal the
// rows of a slot must be exactly the ids strictly before the anchor, at their positions.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "decode/engine.h"
#include "decode/fake_target.h"

namespace dflash::fake {

/// Ids proposed for a sequence; `call` counts calls of propose.
using ProposeFunction =
    std::function<decode::Proposal(const decode::Proposer::Sequence&, int64_t call)>;

class TestProposer final : public decode::Proposer {
 public:
  TestProposer(std::string name, int64_t max_proposals, ProposeFunction propose)
      : name_(std::move(name)), max_proposals_(max_proposals), propose_(std::move(propose)) {}

  std::vector<decode::Proposal> propose(std::span<const Sequence> sequences) override {
    std::vector<decode::Proposal> lists;
    for (const Sequence& sequence : sequences) {
      check_context(sequence);
      lists.push_back(propose_(sequence, calls));
    }
    ++calls;
    return lists;
  }
  void observe(std::span<const Committed> committed, const at::Tensor& taps_RF) override {
    const at::Tensor rows = taps_RF.contiguous();
    const int64_t width = rows.size(1);
    int64_t row = 0;
    for (const Committed& part : committed) {
      EXPECT_EQ(part.first_position, static_cast<int64_t>(contexts[part.slot].size()));
      for (int64_t r = 0; r < part.num_rows; ++r, ++row) {
        const float* tap = rows.const_data_ptr<float>() + row * width;
        EXPECT_EQ(tap[kTapPosition], static_cast<float>(part.first_position + r));
        EXPECT_EQ(tap[kTapLayer], 1.0f);
        contexts[part.slot].push_back(static_cast<int64_t>(tap[kTapId]));
      }
    }
    EXPECT_EQ(row, rows.size(0));
  }
  void reset(int64_t slot, int64_t rows) override {
    EXPECT_LE(rows, static_cast<int64_t>(contexts[slot].size()));
    contexts[slot].resize(rows);
  }
  std::vector<int64_t> taps() const override {
    return watches_taps ? std::vector<int64_t>{1, 5} : std::vector<int64_t>{};
  }
  int64_t max_proposals() const override { return max_proposals_; }
  std::string name() const override { return name_; }

  std::map<int64_t, std::vector<int64_t>> contexts;  // ids of observed rows by slot
  int64_t calls = 0;
  bool watches_taps = true;  // they must be a FakeTarget's

 private:
  void check_context(const Sequence& sequence) {
    const auto before = sequence.ids.first(sequence.ids.size() - 1);
    EXPECT_TRUE(!watches_taps || std::ranges::equal(contexts[sequence.slot], before));
    EXPECT_GT(sequence.room, 0);
    EXPECT_LE(sequence.room, max_proposals_);
  }

  std::string name_;
  int64_t max_proposals_;
  ProposeFunction propose_;
};

/// Knows the texts (prompt and answer) of all requests.
class Oracle {
 public:
  void add(std::vector<int64_t> prompt, const std::vector<int64_t>& answer) {
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    texts_.push_back(std::move(prompt));
  }
  /// The next `count` ids of the text that begins with `ids` (fewer at its end).
  std::vector<int64_t> next(std::span<const int64_t> ids, int64_t count) const {
    for (const auto& text : texts_) {
      if (text.size() < ids.size() || !std::equal(ids.begin(), ids.end(), text.begin())) continue;
      const auto from = text.begin() + static_cast<int64_t>(ids.size());
      return {from, from + std::min<int64_t>(count, text.end() - from)};
    }
    return {};
  }

 private:
  std::vector<std::vector<int64_t>> texts_;
};

/// Trees that hold the right way, and what is hardly one.
inline void add_trees(const Oracle& oracle, int64_t vocab, std::vector<TestProposer>& all) {
  using Sequence = decode::Proposer::Sequence;
  // The right way among wrong ones beside it at every depth, as the first or the last child.
  auto tree_of = [&oracle, vocab](bool right_first) {
    return [&oracle, vocab, right_first](const Sequence& s, int64_t) {
      decode::Proposal tree;
      int64_t at = -1;
      for (const int64_t id : oracle.next(s.ids, s.room)) {
        const std::vector<int64_t> ids = {(id + 1) % vocab, (id + 2) % vocab, (id + 1) % vocab};
        const int64_t first = static_cast<int64_t>(tree.ids.size());
        tree.ids.insert(tree.ids.end(), ids.begin(), ids.end());
        tree.ids.insert(right_first ? tree.ids.begin() + first : tree.ids.end(), id);
        tree.parents.insert(tree.parents.end(), 4, at);
        at = right_first ? first : first + 3;
      }
      return tree;
    };
  };
  // Some ids right, any parents: unknown ones, later ones, the node itself.
  auto tangle = [&oracle, vocab](const Sequence& s, int64_t call) {
    decode::Proposal tree;
    const std::vector<int64_t> ids = oracle.next(s.ids, s.room);
    for (uint64_t i = 0; i < 14; ++i) {
      const uint64_t key = static_cast<uint64_t>(call);
      const auto draw = [&](uint64_t below, uint64_t what) {
        return static_cast<int64_t>(uniform_below(below, {key, i, what}));
      };
      const bool right = !ids.empty() && draw(2, 0) == 0;
      tree.ids.push_back(right ? ids[draw(ids.size(), 1)] : draw(vocab + 2, 2) - 1);
      tree.parents.push_back(draw(6, 3) == 0 ? draw(40, 4) - 20 : draw(i + 1, 5) - 1);
    }
    if (call % 5 == 4) tree.parents.pop_back();
    return tree;
  };
  all.emplace_back("tree, right first", 5, tree_of(true));
  all.emplace_back("tree, right last", 5, tree_of(false));
  all.emplace_back("tangle", 6, tangle);
}

/// The characters that recipe R-DEC-8 names, and worse ones. `oracle` must outlive them.
inline std::vector<TestProposer> all_characters(const Oracle& oracle, int64_t vocab, int64_t mask,
                                                int64_t stop) {
  using Sequence = decode::Proposer::Sequence;
  auto right = [&oracle](const Sequence& s, int64_t) { return oracle.next(s.ids, s.room); };
  auto wrong = [&oracle, vocab](const Sequence& s, int64_t) {
    std::vector<int64_t> ids = oracle.next(s.ids, s.room);
    for (int64_t& id : ids) id = (id + 1) % vocab;
    return ids;
  };
  auto random = [vocab](const Sequence& s, int64_t call) {
    std::vector<int64_t> ids(s.room);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>(uniform_below(vocab, {5, static_cast<uint64_t>(call), i}));
    }
    return ids;
  };
  auto constant = [](int64_t id) {
    return [id](const Sequence& s, int64_t) { return std::vector<int64_t>(s.room, id); };
  };
  auto too_long = [&oracle](const Sequence& s, int64_t) { return oracle.next(s.ids, s.room + 9); };
  auto mixed = [&oracle](const Sequence& s, int64_t call) {  // right 2, plain, wrong, right all
    std::vector<int64_t> ids = oracle.next(s.ids, s.room);
    if (call % 4 == 1) ids.clear();
    const size_t good = call % 4 == 0 ? 2 : call % 4 == 2 ? 0 : ids.size();
    for (size_t i = good; i < ids.size(); ++i) ids[i] = ids[i] == 0 ? 1 : 0;
    return ids;
  };
  auto hostile = [&oracle, vocab](const Sequence& s, int64_t call) {
    std::vector<int64_t> ids = oracle.next(s.ids, s.room);
    const int64_t bad[] = {-1, vocab, INT64_MAX, INT64_MIN};
    if (!ids.empty()) ids[call % static_cast<int64_t>(ids.size())] = bad[call % 4];
    return ids;
  };
  std::vector<TestProposer> all;
  all.emplace_back("always right", 3, right);
  all.emplace_back("always wrong", 3, wrong);
  all.emplace_back("random", 3, random);
  all.emplace_back("always mask", 3, constant(mask));
  all.emplace_back("always stop", 3, constant(stop));
  all.emplace_back("too long", 3, too_long);
  all.emplace_back("mixed", 7, mixed);
  all.emplace_back("hostile", 5, hostile);
  add_trees(oracle, vocab, all);
  return all;
}

}  // namespace dflash::fake
