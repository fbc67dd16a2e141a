#include "eval/repeat.h"

namespace dflash::eval {

bool repeats(std::span<const int64_t> ids) {
  if (ids.size() < 4) return false;
  for (size_t i = 2; i < ids.size(); ++i) {
    if (ids[i] != ids[i - 2]) return false;  // period 2, and so period 1 too
  }
  return true;
}

void WindowCount::add(std::span<const int64_t> ids, int64_t width) {
  for (size_t first = 0; first + static_cast<size_t>(width) <= ids.size(); ++first) {
    windows += 1;
    repeating += repeats(ids.subspan(first, width)) ? 1 : 0;
  }
}

double WindowCount::share() const {
  return windows == 0 ? 0.0 : static_cast<double>(repeating) / static_cast<double>(windows);
}

std::vector<decode::Proposal> WatchedProposer::propose(std::span<const Sequence> sequences) {
  std::vector<decode::Proposal> proposals = ForwardingProposer::propose(sequences);
  for (const decode::Proposal& proposal : proposals) {
    const std::vector<int64_t>& ids = proposal.ids;
    if (!proposal.parents.empty()) continue;  // wrong ways of a tree repeat what stands beside them
    if (ids.size() >= 4) count_.add(ids, static_cast<int64_t>(ids.size()));
  }
  return proposals;
}

}  // namespace dflash::eval
