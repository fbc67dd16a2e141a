// What another program does otherwise, in words.
#include <ATen/ops/index_select.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>

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

/// What stands where a tap should, as far as it can be told.
struct Standing {
  std::optional<TapUse> use;
  bool finite = true;
  std::string words() const {
    if (!finite) return "not finite";
    if (!use) return "no layer's output";
    if (use->zeroed) return "zeros";
    const std::string name =
        use->layer < 0 ? "the embedding" : fmt::format("the output of block {}", use->layer);
    return use->final_normed ? name + " after the target's final norm" : name;
  }
};

Standing standing_in(const at::Tensor& part_SD, const Residuals& residuals,
                     const target::Target& target) {
  const int64_t width = part_SD.size(1), rows = part_SD.size(0);
  const double size = part_SD.norm().item<double>();
  if (size == 0) return {TapUse{.zeroed = true}};
  Standing best;
  best.finite = std::isfinite(size);
  if (!best.finite) return best;
  double least = 0.05;
  for (size_t i = 0; i < residuals.layers.size(); ++i) {
    const at::Tensor own_SD = residuals.bank_TF.narrow(0, 0, rows)
                                  .narrow(1, static_cast<int64_t>(i) * width, width)
                                  .contiguous();
    for (const bool normed : {false, true}) {
      const double d = distance(part_SD, normed ? target.final_norm(own_SD) : own_SD);
      if (d >= least) continue;
      least = d;
      best.use = TapUse{.layer = residuals.layers[i], .final_normed = normed};
    }
  }
  return best;
}

/// Which layer each of their taps really is, where they differ from the declared ones. Nothing
/// where they cannot be told (other rows, other columns).
std::vector<TapUse> name_taps(const Trace& trace, const draft::DraftSpec& spec,
                              const target::Target& target, std::vector<std::string>& findings) {
  const at::Tensor* taps = trace.stages.find("taps");
  const int64_t width = target.config().hidden_size;
  if (!taps || taps->dim() != 2 || taps->size(0) == 0) return {};
  const auto wanted = static_cast<int64_t>(spec.taps.size()) * width;
  if (taps->size(1) != wanted) {
    findings.push_back(fmt::format("their features have {} columns, {} taps of {} make {}",
                                   taps->size(1), spec.taps.size(), width, wanted));
    return {};
  }
  if (std::abs(taps->size(0) - trace.anchor) > 1) return {};  // rows are missing: which, who knows
  const int64_t rows = std::min(taps->size(0), static_cast<int64_t>(trace.ids.size()));
  const Residuals residuals = all_residuals(target, trace.ids);
  const at::Tensor theirs = taps->narrow(0, 0, rows).to(at::kFloat);
  std::vector<TapUse> uses;
  bool differ = false, all_told = true;
  for (size_t i = 0; i < spec.taps.size(); ++i) {
    const at::Tensor part_SD =
        theirs.narrow(1, static_cast<int64_t>(i) * width, width).contiguous();
    const Standing standing = standing_in(part_SD, residuals, target);
    const Standing declared = {TapUse{.layer = spec.taps[i]}};
    all_told = all_told && standing.use;
    uses.push_back(standing.use.value_or(TapUse{}));
    if (standing.words() == declared.words()) continue;
    differ = true;
    findings.push_back(fmt::format("their tap {} of {} is {}; the config declares {}", i + 1,
                                   spec.taps.size(), standing.words(), declared.words()));
  }
  return differ && all_told ? uses : std::vector<TapUse>{};
}

/// One stage with one dimension more than it should have: what is left of a batch.
void note_batches(const Stages& own, const Stages& theirs, std::vector<std::string>& findings) {
  for (const auto& [name, value] : theirs.all()) {
    const at::Tensor* ours = own.find(name);
    if (value.dim() != ours->dim() + 1 || value.size(0) != 1) continue;
    findings.push_back(fmt::format("{}: a batch dimension in front: expected {} dimensions, got {}",
                                   name, ours->dim(), value.dim()));
  }
}

void count_context(const Trace& trace, std::vector<std::string>& findings) {
  for (const auto& [name, value] : trace.stages.all()) {
    if (name != "taps" && name != "fused" && name != "layers.0.k") continue;
    if (value.dim() != (name == "layers.0.k" ? 3 : 2)) continue;
    const int64_t extra = value.size(0) - trace.anchor;
    if (extra == 0) continue;
    if (extra == 1) {
      findings.push_back(fmt::format(
          "their context has one row more ({} for an anchor at {}): the anchor's own feature is "
          "visible",
          value.size(0), trace.anchor));
    } else {
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
  const bool whole = logits && logits->dim() > 0 && logits->size(-1) == spec.vocab_size;
  if (spec.draft_ids.empty() || !whole) return theirs;
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
  const std::vector<int64_t>& draft_ids = drafter.spec().draft_ids;
  report.stages = compare_stages(own, theirs, tolerance, draft_ids);
  if (report.stages.empty()) {
    fail("trace of {}: expected a stage that we know, got none\n  hint: docs/TRACE.md lists them",
         trace.program);
  }
  if (trace.dtype == "f32" && computed != nn::Compute::kF32) {
    report.findings.push_back(
        fmt::format("they computed in f32, we in {}: compared within {:g}; --dtype f32 is sharper",
                    nn::compute_name(computed), tolerance));
  }
  if (report.agrees()) return report;
  note_batches(own, theirs, report.findings);
  count_context(trace, report.findings);
  const auto under = [&](const Convention& convention) {
    return compare_stages(trace_stages(convention, drafter, target, trace.ids, trace.anchor),
                          theirs, tolerance, draft_ids);
  };
  const auto uses = name_taps(trace, drafter.spec(), *target, report.findings);
  size_t furthest = agreeing(report.stages);
  const auto length = static_cast<int64_t>(trace.ids.size());
  for (const Deviation& deviation : deviations_of(declared, *target, length)) {
    const auto results = under(deviate(declared, deviation));
    const std::string line = fmt::format("{} ({})", deviation.words, deviation.name);
    if (all_agree(results)) report.explained.push_back(line);
    if (const size_t reached = agreeing(results); reached > furthest) {
      furthest = reached;
      report.closest = line;
    }
  }
  if (report.explained.empty() && !uses.empty()) {
    Convention convention = declared;
    convention.taps = uses;
    if (all_agree(under(convention))) report.explained.push_back("the taps named above (taps)");
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
