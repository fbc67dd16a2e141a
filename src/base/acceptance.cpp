#include "base/acceptance.h"

#include "base/error.h"

namespace dflash {
namespace {

void grow(std::vector<int64_t>& counts, size_t size) {
  if (counts.size() < size) counts.resize(size, 0);
}

void add_all(std::vector<int64_t>& to, const std::vector<int64_t>& from) {
  grow(to, from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

}  // namespace

void AcceptanceCounts::add_pass(int64_t proposed, int64_t accepted, int64_t committed) {
  DF_ASSERT(accepted >= 0 && accepted <= proposed && committed >= 0 && committed <= accepted + 1,
            "proposed={} accepted={} committed={}", proposed, accepted, committed);
  passes_ += 1;
  proposed_ += proposed;
  accepted_ += accepted;
  committed_ += committed;
  grow(offered_, proposed);
  grow(taken_, proposed);
  for (int64_t k = 0; k < proposed; ++k) {
    offered_[k] += 1;
    taken_[k] += k < accepted ? 1 : 0;
  }
  grow(histogram_, committed + 1);
  histogram_[committed] += 1;
}

void AcceptanceCounts::merge(const AcceptanceCounts& other) {
  passes_ += other.passes_;
  committed_ += other.committed_;
  proposed_ += other.proposed_;
  accepted_ += other.accepted_;
  add_all(offered_, other.offered_);
  add_all(taken_, other.taken_);
  add_all(histogram_, other.histogram_);
}

double AcceptanceCounts::tau() const {
  return passes_ == 0 ? 0.0 : static_cast<double>(committed_) / static_cast<double>(passes_);
}

std::vector<double> AcceptanceCounts::slot_acceptance() const {
  std::vector<double> rates(offered_.size(), 0.0);
  for (size_t k = 0; k < rates.size(); ++k) {
    if (offered_[k] > 0)
      rates[k] = static_cast<double>(taken_[k]) / static_cast<double>(offered_[k]);
  }
  return rates;
}

std::vector<double> AcceptanceCounts::conditional_acceptance() const {
  std::vector<double> rates(offered_.size(), 0.0);
  for (size_t k = 0; k < rates.size(); ++k) {
    const int64_t reached = k == 0 ? offered_[0] : taken_[k - 1];
    if (reached > 0) rates[k] = static_cast<double>(taken_[k]) / static_cast<double>(reached);
  }
  return rates;
}

Json AcceptanceCounts::to_json() const {
  return {{"tau", tau()},
          {"passes", passes_},
          {"committed", committed_},
          {"proposed", proposed_},
          {"accepted", accepted_},
          {"slot_acceptance", slot_acceptance()},
          {"conditional_acceptance", conditional_acceptance()},
          {"histogram", histogram_}};
}

}  // namespace dflash
