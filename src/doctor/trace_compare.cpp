// What another program does otherwise, in words.
#include <ATen/ops/index_select.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "base/error.h"
#include "doctor/evidence.h"
#include "doctor/trace.h"
#include "nn/compute.h"

namespace dflash::doctor {
namespace {

nn::Compute compute_of(const Trace& trace) {
  return trace.dtype == "f32" ? nn::Compute::kF32 : nn::Compute::kBF16;
}

/// Stages before the first that differs, of those that both have.
size_t agreeing(const std::vector<StageResult>& results) {
  size_t count = 0;
  while (count < results.size() && results[count].agrees) ++count;
  return count;
}

bool all_agree(const std::vector<StageResult>& results) {
  return agreeing(results) == results.size();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const double size = b.norm().item<double>();
  return (a - b).norm().item<double>() / std::max(size, 1e-30);
}

/// Every layer's residual of the document, for naming what stands where a tap should.
struct Residuals {
  std::vector<int64_t> layers;
  at::Tensor bank_TF;
};

Residuals all_residuals(const target::Target& target, const std::vector<int64_t>& ids) {
  Residuals residuals;
  for (int64_t layer = -1; layer < target.config().num_layers; ++layer) {
    residuals.layers.push_back(layer);
  }
  data::Dataset dataset;
  dataset.add({.ids = ids, .loss_mask = std::vector<uint8_t>(ids.size(), 1)});
  residuals.bank_TF = hidden_states(target, dataset, residuals.layers).front();
  return residuals;
}

std::string name_of(const at::Tensor& part_SD, const Residuals& residuals,
                    const target::Target& target) {
  const int64_t width = part_SD.size(1), rows = part_SD.size(0);
  if (part_SD.norm().item<double>() == 0) return "zeros";
  std::string best = "no layer's output";
  double least = 0.05;
  for (size_t i = 0; i < residuals.layers.size(); ++i) {
    const at::Tensor own_SD = residuals.bank_TF.narrow(0, 0, rows)
                                  .narrow(1, static_cast<int64_t>(i) * width, width)
                                  .contiguous();
    const std::string name = residuals.layers[i] < 0
                                 ? "the embedding"
                                 : fmt::format("the output of block {}", residuals.layers[i]);
    if (const double d = distance(part_SD, own_SD); d < least) least = d, best = name;
    if (const double d = distance(part_SD, target.final_norm(own_SD)); d < least) {
      least = d, best = name + " after the target's final norm";
    }
  }
  return best;
}

/// Which layer each of their taps really is.
void name_taps(const Trace& trace, const draft::DraftSpec& spec, const target::Target& target,
               std::vector<std::string>& findings) {
  const at::Tensor* taps = trace.stages.find("taps");
  const int64_t width = target.config().hidden_size;
  if (!taps || taps->dim() != 2 || taps->size(0) == 0) return;
  const auto wanted = static_cast<int64_t>(spec.taps.size()) * width;
  if (taps->size(1) != wanted) {
    findings.push_back(fmt::format("their features have {} columns, {} taps of {} make {}",
                                   taps->size(1), spec.taps.size(), width, wanted));
    return;
  }
  const int64_t rows = std::min(taps->size(0), static_cast<int64_t>(trace.ids.size()));
  const Residuals residuals = all_residuals(target, trace.ids);
  const at::Tensor theirs = taps->narrow(0, 0, rows).to(at::kFloat);
  for (size_t i = 0; i < spec.taps.size(); ++i) {
    const at::Tensor part_SD =
        theirs.narrow(1, static_cast<int64_t>(i) * width, width).contiguous();
    const std::string name = name_of(part_SD, residuals, target);
    const std::string declared =
        spec.taps[i] < 0 ? "the embedding" : fmt::format("the output of block {}", spec.taps[i]);
    if (name == declared) continue;
    findings.push_back(fmt::format("their tap {} of {} is {}; the config declares {}", i + 1,
                                   spec.taps.size(), name, declared));
  }
}

void count_context(const Trace& trace, std::vector<std::string>& findings) {
  for (const auto& [name, value] : trace.stages.all()) {
    if (name != "taps" && name != "fused" && name != "layers.0.k") continue;
    const int64_t extra = value.size(0) - trace.anchor;
    if (extra == 1) {
      findings.push_back(fmt::format(
          "their context has one row more ({} for an anchor at {}): the anchor's own feature is "
          "visible",
          value.size(0), trace.anchor));
    } else if (extra != 0) {
      findings.push_back(
          fmt::format("their context has {} rows {}, for an anchor at {}: {} of them",
                      std::abs(extra), extra > 0 ? "more" : "fewer", trace.anchor, value.size(0)));
    }
    return;
  }
}

/// Their logits over the whole vocabulary, where ours are over a draft vocabulary: the columns that
/// both have. Their proposals then come from more ids than ours can.
Stages over_draft_vocabulary(const Stages& theirs, const draft::DraftSpec& spec,
                             std::vector<std::string>& findings) {
  const at::Tensor* logits = theirs.find("logits");
  if (!logits || spec.draft_ids.empty() || logits->size(-1) != spec.vocab_size) return theirs;
  findings.push_back(
      fmt::format("their head has all {} ids, the drafter's vocabulary {}: compared on those",
                  spec.vocab_size, spec.draft_ids.size()));
  Stages stages;
  for (const auto& [name, value] : theirs.all()) {
    if (name == "proposals") continue;
    stages.add(name, name == "logits"
                         ? value.index_select(-1, at::tensor(spec.draft_ids, at::kLong))
                         : value);
  }
  return stages;
}

}  // namespace

bool TraceReport::agrees() const {
  return all_agree(stages);
}

TraceReport compare_trace(const Trace& trace, const draft::Drafter& drafter,
                          std::shared_ptr<const target::Target> target) {
  const Convention declared = declared_convention(drafter.spec());
  const nn::Compute computed =
      drafter.compute() == nn::Compute::kF32 ? compute_of(trace) : drafter.compute();
  const double tolerance = stage_tolerance(computed);
  TraceReport report{.program = trace.program};
  const Stages own = trace_stages(declared, drafter, target, trace.ids, trace.anchor);
  for (const auto& [name, value] : trace.stages.all()) {
    if (own.find(name)) continue;
    fail(
        "trace of {}: unknown stage {}\n  hint: docs/TRACE.md lists the names; layers are numbered "
        "from 0 to {}",
        trace.program, name, drafter.spec().num_layers - 1);
  }
  const Stages theirs = over_draft_vocabulary(trace.stages, drafter.spec(), report.findings);
  report.stages = compare_stages(own, theirs, tolerance);
  if (report.stages.empty()) {
    fail("trace of {}: expected a stage that we know, got none\n  hint: docs/TRACE.md lists them",
         trace.program);
  }
  if (report.agrees()) return report;
  count_context(trace, report.findings);
  name_taps(trace, drafter.spec(), *target, report.findings);
  size_t furthest = agreeing(report.stages);
  const auto length = static_cast<int64_t>(trace.ids.size());
  for (const Deviation& deviation : deviations_of(declared, *target, length)) {
    const Convention other = deviate(declared, deviation);
    const auto results = compare_stages(
        trace_stages(other, drafter, target, trace.ids, trace.anchor), theirs, tolerance);
    const std::string line = fmt::format("{} ({})", deviation.words, deviation.name);
    if (all_agree(results)) report.explained.push_back(line);
    if (const size_t reached = agreeing(results); reached > furthest) {
      furthest = reached;
      report.closest = line;
    }
  }
  return report;
}

std::string TraceReport::to_text() const {
  std::string text = stage_table(stages, "ours", program);
  for (const std::string& finding : findings) text += finding + "\n";
  if (agrees()) return text + fmt::format("\nevery stage agrees with {}\n", program);
  for (const std::string& line : explained) {
    text += fmt::format("every stage agrees when we do what {} does: {}\n", program, line);
  }
  if (explained.empty() && closest) {
    text += fmt::format("no single deviation explains all; nearest: {}\n", *closest);
  }
  if (explained.empty() && !closest) text += "no known deviation explains the difference\n";
  return text;
}

Json TraceReport::to_json() const {
  Json json = {{"program", program},
               {"agrees", agrees()},
               {"stages", stage_json(stages)},
               {"findings", findings},
               {"explained_by", explained}};
  json["closest"] = closest ? Json(*closest) : Json();
  return json;
}

}  // namespace dflash::doctor
