#include "eval/evaluate.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/loops.h"
#include "decode/proposers.h"
#include "eval/arm.h"
#include "text/prompt.h"

namespace dflash::eval {
namespace {

void check_options(const EvalOptions& options) {
  if (options.batch < 1 || options.max_new_tokens < 1) {
    fail("eval: expected batch and max new tokens >= 1, got {} and {}", options.batch,
         options.max_new_tokens);
  }
  const auto& edges = options.context_edges;
  if (edges.empty() || edges[0] != 0 || !std::is_sorted(edges.begin(), edges.end())) {
    fail("eval: context edges: expected ascending numbers that begin with 0");
  }
}

std::string hash_of(const std::vector<EncodedTask>& tasks) {
  uint64_t hash = 0;
  for (const EncodedTask& task : tasks) {
    hash = mix({hash, task.prompt.size()});
    for (int64_t id : task.prompt) hash = mix({hash, static_cast<uint64_t>(id)});
  }
  return fmt::format("{:016x}", hash);
}

/// Tasks whose prompts fit the target's context.
std::vector<EncodedTask> fitting(const target::Target& target,
                                 const std::vector<EncodedTask>& tasks) {
  std::vector<EncodedTask> kept;
  for (const EncodedTask& task : tasks) {
    const int64_t length = static_cast<int64_t>(task.prompt.size());
    if (length <= target.config().max_positions) {
      kept.push_back(task);
    } else {
      log_warning("eval: {}: left out, its prompt of {} tokens is longer than the context", task.id,
                  length);
    }
  }
  if (kept.empty())
    fail("eval: expected at least one task whose prompt fits the context, got none");
  return kept;
}

std::span<const int64_t> without_stop(const std::vector<int64_t>& tokens,
                                      const std::vector<int64_t>& stop_ids) {
  const bool stopped = !tokens.empty() &&
                       std::find(stop_ids.begin(), stop_ids.end(), tokens.back()) != stop_ids.end();
  return {tokens.data(), tokens.size() - (stopped ? 1 : 0)};
}

class Evaluation {
 public:
  Evaluation(const target::Target& target, const std::vector<Drafter>& drafters,
             std::vector<EncodedTask> tasks, std::vector<int64_t> stop_ids,
             const EvalOptions& options)
      : target_(target),
        tasks_(std::move(tasks)),
        stop_ids_(std::move(stop_ids)),
        options_(options) {
    if (options.with_plain) arms_.emplace_back("plain", nullptr, target, options);
    for (const Drafter& drafter : drafters) {
      DF_ASSERT(drafter.proposer, "{} has no proposer", drafter.name);
      arms_.emplace_back(drafter.name, drafter.proposer, target, options);
    }
    if (options.with_lookup) {
      lookup_ = decode::make_lookup_proposer();
      arms_.emplace_back(lookup_->name(), lookup_.get(), target, options);
    }
    if (arms_.empty()) fail("eval: expected a drafter, prompt lookup or plain decoding, got none");
  }

  void run();
  Report report() const;

 private:
  bool stopping() const { return options_.should_stop && options_.should_stop(); }
  std::vector<bool> looping_tasks(Report& report) const;

  const target::Target& target_;
  std::vector<EncodedTask> tasks_;
  std::vector<int64_t> stop_ids_;
  const EvalOptions& options_;
  std::unique_ptr<decode::Proposer> lookup_;
  std::vector<Arm> arms_;
};

void Evaluation::run() {
  const bool timed = options_.batch == 1;
  const size_t group = timed ? 1 : tasks_.size();
  const int64_t total = static_cast<int64_t>(tasks_.size() * arms_.size());
  int64_t done = 0;
  const auto on_finish = [&] {
    if (options_.on_task) options_.on_task(++done, total);
  };
  if (timed && !stopping()) {
    for (Arm& arm : arms_) arm.warm_up(tasks_[0]);
  }
  for (size_t first = 0; first < tasks_.size(); first += group) {
    for (Arm& arm : arms_) {
      if (!stopping()) arm.decode(tasks_, first, group, stop_ids_, on_finish);
    }
  }
}

/// A task loops when its text does. All arms have the same texts; the first arm's are looked at.
std::vector<bool> Evaluation::looping_tasks(Report& report) const {
  std::vector<bool> looping(tasks_.size(), false);
  WindowCount windows;
  for (const auto& [index, result] : arms_[0].results()) {
    const std::span<const int64_t> text = without_stop(result.tokens, stop_ids_);
    looping[index] = data::find_loop(text).has_value();
    report.num_looping += looping[index] ? 1 : 0;
    windows.add(text, 7);
  }
  report.repeating_text = windows.share();
  return looping;
}

Report Evaluation::report() const {
  Report report;
  report.prompt_hash = hash_of(tasks_);
  report.target = fmt::format("{} {}", target_.config().family, target_.storage());
  report.kernels = nn::kernel_name(target_.compute());
  report.num_tasks = static_cast<int64_t>(arms_[0].results().size());
  report.timed = options_.batch == 1;
  report.has_plain = options_.with_plain;
  report.stopped = arms_.back().results().size() < tasks_.size();
  const std::vector<bool> looping = looping_tasks(report);
  for (size_t a = 0; a < arms_.size(); ++a) {
    const bool is_plain = options_.with_plain && a == 0;
    ArmReport arm =
        arms_[a].report(tasks_, looping, options_.with_plain && !is_plain ? &arms_[0] : nullptr);
    if (is_plain) {
      report.plain = std::move(arm);
    } else {
      arm.is_drafter = !lookup_ || a + 1 < arms_.size();
      report.arms.push_back(std::move(arm));
    }
  }
  return report;
}

}  // namespace

Report evaluate_ids(const target::Target& target, const std::vector<Drafter>& drafters,
                    const std::string& set_name, const std::vector<EncodedTask>& tasks,
                    const std::vector<int64_t>& stop_ids, const EvalOptions& options) {
  check_options(options);
  const std::vector<EncodedTask> kept = fitting(target, tasks);
  Evaluation evaluation(target, drafters, kept, stop_ids, options);
  evaluation.run();
  Report report = evaluation.report();
  report.tasks = set_name;
  report.num_too_long = static_cast<int64_t>(tasks.size() - kept.size());
  const auto ineffective = report.ineffective();
  if (options.require_acceptance && !ineffective.empty()) throw Error(ineffective.front());
  return report;
}

Report evaluate(const target::Target& target, const text::Tokenizer& tokenizer,
                const text::ChatTemplate& chat, const std::vector<Drafter>& drafters,
                const TaskSet& tasks, const EvalOptions& options) {
  std::vector<EncodedTask> encoded;
  data::Drops refused;
  for (const Task& task : tasks.tasks) {
    auto prompt = text::encode_whole_prompt(tokenizer, chat, task.conversation);
    if (prompt.refused.empty()) {
      encoded.push_back({task.id, std::move(prompt.ids)});
      continue;
    }
    refused.add(prompt.refused, task.id, prompt.detail);
  }
  refused.warn("tasks");
  if (encoded.empty()) {
    fail("eval: {}: none of the {} tasks can be asked: {}", tasks.name, tasks.tasks.size(),
         refused.empty() ? "there are none" : refused.by_reason().begin()->first);
  }
  Report report =
      evaluate_ids(target, drafters, tasks.name, encoded, tokenizer.stop_ids(), options);
  for (const data::Drops* drops : {&tasks.left_out, &std::as_const(refused)}) {
    for (const auto& [reason, drop] : drops->by_reason()) report.refused[reason] += drop.count;
  }
  return report;
}

}  // namespace dflash::eval
