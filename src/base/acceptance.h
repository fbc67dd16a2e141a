// The one definition of tau, used by trainer, evaluator, decoder and pages: sum of committed tokens
// over verify passes, pooled, after stop tokens and budgets have cut (DESIGN.md 2.4). Counts only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"

namespace dflash {

class AcceptanceCounts {
 public:
  /// One verify pass that offered `proposed` draft tokens, of which the first `accepted` matched,
  /// and committed `committed` tokens (bonus token included, cuts applied). A plain step is
  /// (0, 0, 1). Cut passes count an accepted draft only when it was committed.
  void add_pass(int64_t proposed, int64_t accepted, int64_t committed);
  void merge(const AcceptanceCounts& other);

  int64_t passes() const { return passes_; }
  int64_t committed() const { return committed_; }
  int64_t proposed() const { return proposed_; }
  int64_t accepted() const { return accepted_; }

  /// committed / passes; 0 when there was no pass.
  double tau() const;
  /// Share of passes that offered slot k (1-based) in which slots 1..k were all accepted.
  std::vector<double> slot_acceptance() const;
  /// The same among passes in which slots 1..k-1 were accepted (0 when there were none).
  std::vector<double> conditional_acceptance() const;
  /// histogram[n] = passes that committed n tokens.
  const std::vector<int64_t>& histogram() const { return histogram_; }

  Json to_json() const;

 private:
  int64_t passes_ = 0, committed_ = 0, proposed_ = 0, accepted_ = 0;
  std::vector<int64_t> offered_, taken_, histogram_;  // index = slot - 1; histogram by tokens
};

}  // namespace dflash
