#include "data/vocab.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace dflash::data {
namespace {

std::vector<int64_t> count_supervised(const Dataset& dataset, int64_t vocab_size) {
  std::vector<int64_t> counts(static_cast<size_t>(vocab_size), 0);
  for (size_t t = 0; t < dataset.ids.size(); ++t) {
    if (dataset.loss_mask[t] == 0) continue;
    const int64_t id = dataset.ids[t];
    if (id < 0 || id >= vocab_size) {
      fail("draft vocabulary: token {}: expected an id from 0 to {}, got {}", t, vocab_size - 1,
           id);
    }
    ++counts[static_cast<size_t>(id)];
  }
  return counts;
}

}  // namespace

double DraftVocab::coverage() const {
  return supervised == 0 ? 0.0 : static_cast<double>(covered) / static_cast<double>(supervised);
}

Json DraftVocab::to_json() const {
  return {{"dataset_fingerprint", dataset_fingerprint},
          {"size", ids.size()},
          {"supervised_tokens", supervised},
          {"covered_tokens", covered},
          {"ids", ids}};
}

DraftVocab make_draft_vocab(const Dataset& dataset, int64_t size, std::span<const int64_t> always,
                            int64_t vocab_size) {
  const std::vector<int64_t> counts = count_supervised(dataset, vocab_size);
  DraftVocab vocab;
  vocab.dataset_fingerprint = dataset_fingerprint(dataset);
  std::vector<bool> taken(counts.size(), false);
  const auto take = [&](int64_t id) {
    if (taken[static_cast<size_t>(id)]) return;
    taken[static_cast<size_t>(id)] = true;
    vocab.ids.push_back(id);
  };
  for (int64_t id : always) {
    if (id < 0 || id >= vocab_size) {
      fail("draft vocabulary: required id: expected 0 to {}, got {}", vocab_size - 1, id);
    }
    take(id);
  }
  if (static_cast<int64_t>(vocab.ids.size()) > size) {
    fail("draft vocabulary: expected a size of at least {} (required ids), got {}",
         vocab.ids.size(), size);
  }
  std::vector<int64_t> by_count(counts.size());
  std::iota(by_count.begin(), by_count.end(), 0);
  std::stable_sort(by_count.begin(), by_count.end(),
                   [&](int64_t a, int64_t b) { return counts[a] > counts[b]; });
  for (int64_t id : by_count) {
    if (counts[id] == 0 || static_cast<int64_t>(vocab.ids.size()) >= size) break;
    take(id);
  }
  std::sort(vocab.ids.begin(), vocab.ids.end());
  vocab.supervised = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (int64_t id : vocab.ids) vocab.covered += counts[id];
  return vocab;
}

}  // namespace dflash::data
