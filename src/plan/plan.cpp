#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "plan/operations.h"

namespace dflash::plan {
namespace {

struct Alternative {
  std::string option;
  std::function<void(Request&)> apply;
};

/// Half of a row has half of its anchors, unless these already filled several passes.
void halve_row(StepShape& step) {
  const double row_anchors = static_cast<double>(step.pass_anchors * step.step_passes);
  step.row_tokens = std::max<int64_t>(2, step.row_tokens / 2);
  step.row_documents = std::max<int64_t>(1, step.row_documents / 2);
  step.pass_anchors =
      std::min(step.pass_anchors, std::max<int64_t>(1, static_cast<int64_t>(row_anchors / 2)));
}

std::vector<Alternative> alternatives(const Request& now) {
  std::vector<Alternative> out;
  if (now.step.live_target) {
    out.push_back(
        {"capture first, then --features", [](Request& r) { r.step.live_target = false; }});
  }
  if (now.step.precision == Precision::kF32) {
    out.push_back({"--dtype bf16", [](Request& r) { r.step.precision = Precision::kBF16; }});
  }
  if (now.step.optimizer == Optimizer::kAdamW) {
    out.push_back({"--optimizer muon", [](Request& r) { r.step.optimizer = Optimizer::kMuon; }});
  }
  out.push_back({fmt::format("--row-tokens {}", now.step.row_tokens / 2),
                 [](Request& r) { halve_row(r.step); }});
  const int64_t anchors = std::max<int64_t>(1, now.step.pass_anchors / 4);
  out.push_back(
      {fmt::format("--anchors-per-document of a quarter ({} anchors a pass)", anchors),
       [anchors](Request& r) { r.step.pass_anchors = std::min(r.step.pass_anchors, anchors); }});
  if (!now.drafter.reduced_vocab && now.drafter.vocab_size > 65536) {
    out.push_back({"--draft-vocab 32768", [](Request& r) {
                     r.drafter.vocab_size = 32768;
                     r.drafter.reduced_vocab = true;
                   }});
  }
  if (now.drafter.num_layers > 2) {
    out.push_back({fmt::format("--layers {}", now.drafter.num_layers / 2),
                   [](Request& r) { r.drafter.num_layers /= 2; }});
  }
  return out;
}

int64_t needed(const Request& r) {
  return plan_memory(r.target, r.drafter, r.step, r.program_bytes).needed_bytes;
}

std::vector<Change> changes_that_help(const Request& request, int64_t now) {
  std::vector<Change> changes;
  Request all = request;
  for (const Alternative& alternative : alternatives(request)) {
    Request changed = request;
    alternative.apply(changed);
    const int64_t then = needed(changed);
    if (then >= now) continue;
    changes.push_back({alternative.option, then});
    alternative.apply(all);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.needed_bytes < b.needed_bytes;
  });
  if (changes.size() > 1) changes.push_back({"all of these", needed(all)});
  return changes;
}

}  // namespace

std::vector<TimePart> plan_time(const TargetShape& target, const DrafterShape& drafter,
                                const StepShape& step, const Rates& rates) {
  const double flops = kReachedShare * rates.gflops * 1e9, bandwidth = rates.gbs * 1e9;
  std::vector<TimePart> parts;
  const auto add = [&](const char* part, const char* what, double operations, double bytes) {
    parts.push_back({part, what, operations, bytes, operations / flops + bytes / bandwidth});
  };
  const double context =
      static_cast<double>(step.row_tokens) / static_cast<double>(2 * step.row_documents);
  if (step.live_target) {
    add("target", "its pass over the step's tokens",
        target_operations(target, step.step_tokens, context), 0);
  } else {
    const auto stored = static_cast<double>(2 * drafter.features() * step.step_tokens);
    add("features", "read and copied", 0, 2 * stored);
  }
  const double attention = block_attention_operations(drafter, step.step_anchors, context);
  add("drafter, forward", "context and blocks",
      total_operations(drafter_products(drafter, step.step_tokens, step.step_anchors)) + attention,
      0);
  const double head = head_operations(drafter, step.step_anchors * (drafter.block_size - 1));
  add("head and loss", "scores of the trained slots, gradient of their rows",
      step.soft_loss ? 1.5 * head : head, 0);  // the target's scores as well
  add("drafter, backward", "gradients of inputs and of weights",
      total_operations(drafter_gradients(drafter, step.step_tokens, step.step_anchors)) +
          2 * attention,
      0);
  const bool muon = step.optimizer == Optimizer::kMuon;
  add("optimizer", muon ? "orthogonalisation, weights and momentum" : "weights and moments",
      muon ? muon_operations(drafter) : 0, update_bytes(drafter, step.optimizer));
  return parts;
}

double Plan::seconds() const {
  double sum = 0;
  for (const TimePart& part : time) sum += part.seconds;
  return sum;
}

Plan make_plan(const Request& request) {
  Plan plan{
      .request = request,
      .memory = plan_memory(request.target, request.drafter, request.step, request.program_bytes),
      .time = plan_time(request.target, request.drafter, request.step, request.rates),
      .changes = {}};
  if (!plan.fits()) plan.changes = changes_that_help(request, plan.memory.needed_bytes);
  return plan;
}

}  // namespace dflash::plan
