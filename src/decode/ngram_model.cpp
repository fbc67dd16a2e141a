#include "decode/ngram_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::decode {

uint64_t NgramModel::key_of(std::span<const int64_t> ids) {
  uint64_t key = ids.size();
  for (const int64_t id : ids) key = mix({key, static_cast<uint64_t>(id)});
  return key;
}

const NgramModel::Trust& NgramModel::trust(int64_t order, int64_t occurrences) const {
  return trust_[order - 1][std::min(occurrences - 1, kManyBin)];
}

/// Of the n-gram `last`, the latest first; the text's own end has no follower yet.
NgramModel::Followers NgramModel::followers(std::span<const int64_t> last) const {
  Followers found;
  const auto at = latest_[last.size() - 1].find(key_of(last));
  if (at == latest_[last.size() - 1].end()) return found;
  for (int64_t end = at->second; end >= 0 && found.occurrences < kRecent;
       end = before_[last.size() - 1][end]) {
    if (end + 1 >= size()) continue;
    const int64_t id = text_[end + 1];
    const double weight = found.occurrences == 0 ? 1.5 : 1.0;
    const auto known = std::ranges::find(found.ids, id, &Candidate::id);
    if (known == found.ids.end()) {
      found.ids.push_back({id, weight});
    } else {
      known->probability += weight;
    }
    found.occurrences += 1;
    found.sum += weight;
  }
  return found;
}

void NgramModel::push(int64_t id) {
  const std::span<const int64_t> before = text_;
  for (int64_t n = std::min(kOrders, size()); n >= 1; --n) {
    const Followers found = followers(before.last(n));
    if (found.ids.empty()) continue;
    const bool right = std::ranges::find(found.ids, id, &Candidate::id) != found.ids.end();
    Trust& trust = trust_[n - 1][std::min(found.occurrences - 1, kManyBin)];
    trust.right += right ? 1 : 0;
    trust.all += 1;
    if (right) break;  // shorter matches are asked only when longer ones fail
  }
  text_.push_back(id);
  const std::span<const int64_t> now = text_;
  for (int64_t n = 1; n <= kOrders; ++n) {
    before_[n - 1].push_back(-1);
    if (n > size()) continue;
    const auto [at, fresh] = latest_[n - 1].try_emplace(key_of(now.last(n)), size() - 1);
    if (fresh) continue;
    before_[n - 1].back() = at->second;
    at->second = size() - 1;
  }
}

void NgramModel::extend(std::span<const int64_t> text) {
  DF_ASSERT(static_cast<int64_t>(text.size()) >= size(), "a text of {} ids after {}", text.size(),
            size());
  for (const int64_t id : text.subspan(text_.size())) push(id);
}

std::vector<Candidate> NgramModel::next(std::span<const int64_t> way) const {
  std::vector<int64_t> last;
  const int64_t of_way = std::min<int64_t>(kOrders, static_cast<int64_t>(way.size()));
  const int64_t of_text = std::min(kOrders - of_way, size());
  last.insert(last.end(), text_.end() - of_text, text_.end());
  last.insert(last.end(), way.end() - of_way, way.end());
  std::vector<Candidate> all;
  double left = 1;  // that longer matches leave
  for (int64_t n = static_cast<int64_t>(last.size()); n >= 1; --n) {
    Followers found = followers(std::span<const int64_t>(last).last(n));
    if (found.ids.empty()) continue;
    const Trust& how_far = trust(n, found.occurrences);
    std::erase_if(found.ids, [&](const Candidate& one) {
      const bool known = std::ranges::find(all, one.id, &Candidate::id) != all.end();
      if (known) found.sum -= one.probability;
      return known;
    });
    if (found.ids.empty()) continue;
    const double share = left * how_far.right / how_far.all;
    for (const Candidate& one : found.ids) {
      all.push_back({one.id, share * one.probability / found.sum});
    }
    left -= share;
  }
  std::ranges::stable_sort(all, std::greater<>(), &Candidate::probability);
  return all;
}

}  // namespace dflash::decode
