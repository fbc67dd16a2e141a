#include "eval/arm.h"

#include <limits>

#include "base/error.h"

namespace dflash::eval {
namespace {

decode::Request request_of(const EncodedTask& task, size_t index, const EvalOptions& options,
                           const std::vector<int64_t>& stop_ids) {
  decode::Request request{.prompt = task.prompt,
                          .sampling = options.sampling,
                          .max_new_tokens = options.max_new_tokens,
                          .stop_ids = stop_ids};
  request.sampling.seed += index;
  return request;
}

std::vector<ContextBin> bins_from(const std::vector<int64_t>& edges) {
  std::vector<ContextBin> bins;
  for (size_t i = 0; i < edges.size(); ++i) {
    const int64_t end = i + 1 < edges.size() ? edges[i + 1] : std::numeric_limits<int64_t>::max();
    bins.push_back({edges[i], end, {}});
  }
  return bins;
}

}  // namespace

Arm::Arm(std::string name, decode::Proposer* proposer, const target::Target& target,
         const EvalOptions& options)
    : name_(std::move(name)),
      proposer_(proposer ? std::make_unique<WatchedProposer>(*proposer) : nullptr),
      target_(target),
      options_(options),
      bins_(bins_from(options.context_edges)) {}

ContextBin& Arm::bin_of(int64_t position) {
  const auto found = std::find_if(bins_.begin(), bins_.end(), [position](const ContextBin& bin) {
    return position >= bin.begin && position < bin.end;
  });
  DF_ASSERT(found != bins_.end(), "position={} in no bin", position);
  return *found;
}

void Arm::decode(const std::vector<EncodedTask>& tasks, size_t first, size_t count,
                 const std::vector<int64_t>& stop_ids, const std::function<void()>& on_finish) {
  std::vector<decode::Request> requests;
  std::vector<int64_t> length(count);  // of prompt and committed text
  for (size_t i = 0; i < count; ++i) {
    requests.push_back(request_of(tasks[first + i], first + i, options_, stop_ids));
    length[i] = static_cast<int64_t>(requests[i].prompt.size());
  }
  decode::EngineOptions engine;
  engine.max_batch = options_.batch;
  engine.should_stop = options_.should_stop;
  engine.on_commit = [&](const decode::Commit& commit) {
    const int64_t committed = static_cast<int64_t>(commit.tokens.size());
    const bool prefill =
        length[commit.request] == static_cast<int64_t>(requests[commit.request].prompt.size());
    if (!prefill) {
      bin_of(length[commit.request] - 1)
          .counts.add_pass(commit.proposed, commit.accepted, committed);
    }
    length[commit.request] += committed;
  };
  engine.on_finish = [&](size_t request, const decode::Result& result) {
    results_[first + request] = result;
    on_finish();
  };
  const decode::Run run = decode::generate(target_, proposer_.get(), requests, engine);
  Speed speed = {run.prefill_seconds, run.decode_seconds, 0, run.decode_tokens};
  for (const decode::Result& result : run.results) {
    speed.tokens += static_cast<int64_t>(result.tokens.size());
  }
  speed_.add(speed);
}

void Arm::warm_up(const EncodedTask& task) {
  decode::Request request = request_of(task, 0, options_, {});
  request.max_new_tokens = std::min<int64_t>(request.max_new_tokens, 8);
  decode::generate(target_, proposer_ ? proposer_.get() : nullptr, {request});
}

ArmReport Arm::report(const std::vector<EncodedTask>& tasks, const std::vector<bool>& looping,
                      const Arm* plain) const {
  ArmReport report;
  report.name = name_;
  report.speed = speed_;
  double sum_of_means = 0;
  int64_t num_means = 0;
  for (const auto& [index, result] : results_) {
    report.counts.merge(result.counts);
    if (!looping[index]) report.without_loops.merge(result.counts);
    if (result.counts.passes() > 0) {
      sum_of_means += result.counts.tau();
      num_means += 1;
    }
    if (!plain || !plain->results().contains(index)) continue;
    std::optional<Difference> difference =
        first_difference(target_, tasks[index].prompt, plain->results().at(index).tokens,
                         result.tokens, options_.sampling.temperature == 0.0);
    report.num_compared += 1;
    if (!difference) continue;
    difference->task = tasks[index].id;
    report.differences.push_back(*difference);
  }
  if (num_means > 0) report.mean_of_means = sum_of_means / static_cast<double>(num_means);
  for (const ContextBin& bin : bins_) {
    if (bin.counts.passes() > 0) report.by_context.push_back(bin);
  }
  if (proposer_) report.repeating_drafts = proposer_->count().share();
  return report;
}

}  // namespace dflash::eval
