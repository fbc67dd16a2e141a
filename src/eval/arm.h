// One way to decode the tasks, and what was counted while it ran.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/repeat.h"

namespace dflash::eval {

class Arm {
 public:
  /// proposer == nullptr: plain decoding.
  Arm(std::string name, decode::Proposer* proposer, const target::Target& target,
      const EvalOptions& options);

  /// Decodes tasks [first, first + count) in one run.
  void decode(const std::vector<EncodedTask>& tasks, size_t first, size_t count,
              const std::vector<int64_t>& stop_ids, const std::function<void()>& on_finish);
  /// A few tokens of one task, not counted: caches and lazily made buffers are warm afterwards.
  void warm_up(const EncodedTask& task);

  /// By task; a task that should_stop cut off is absent.
  const std::map<size_t, decode::Result>& results() const { return results_; }

  /// The numbers, with each text compared to `plain`'s when there is one.
  ArmReport report(const std::vector<EncodedTask>& tasks, const std::vector<bool>& looping,
                   const Arm* plain) const;

 private:
  ContextBin& bin_of(int64_t position);

  std::string name_;
  std::unique_ptr<WatchedProposer> proposer_;
  const target::Target& target_;
  const EvalOptions& options_;
  std::map<size_t, decode::Result> results_;
  std::vector<ContextBin> bins_;
  Speed speed_;
};

}  // namespace dflash::eval
