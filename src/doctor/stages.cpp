// Anchors, comparison and report; the two paths are in training_stages.cpp and decoding_stages.cpp.
#include "doctor/stages.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/masked_fill.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::doctor {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

std::string index_text(const at::Tensor& tensor, int64_t flat) {
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()));
  for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
    index[d] = flat % tensor.size(d);
    flat /= tensor.size(d);
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

/// Norms of one row, its last dimension.
struct RowError {
  double difference = 0, size = 0;  // squares; infinite where one side only is not finite
  int64_t worst = 0;                // element of the largest difference
};

RowError row_error(const double* p, const double* q, int64_t width) {
  RowError row;
  double largest = 0;
  for (int64_t i = 0; i < width; ++i) {
    if (p[i] == q[i] && !std::isfinite(q[i])) continue;  // ids that can never be chosen
    const double error =
        std::isfinite(p[i]) && std::isfinite(q[i]) ? std::abs(p[i] - q[i]) : INFINITY;
    row.difference += error * error;
    if (std::isfinite(q[i])) row.size += q[i] * q[i];
    if (error <= largest) continue;
    largest = error;
    row.worst = i;
  }
  return row;
}

StageResult compare_values(const std::string& name, const at::Tensor& a, const at::Tensor& b,
                           double tolerance) {
  StageResult result{.name = name, .shape = shape_text(b)};
  if (a.sizes() != b.sizes()) {
    result.where = fmt::format("shape {} against {}", shape_text(a), shape_text(b));
    return result;
  }
  const bool exact = !a.is_floating_point() && !b.is_floating_point();
  const at::Tensor x = a.to(at::kDouble).contiguous(), y = b.to(at::kDouble).contiguous();
  const auto *p = x.const_data_ptr<double>(), *q = y.const_data_ptr<double>();
  const int64_t width = exact || y.dim() == 0 ? 1 : y.size(-1);
  int64_t at = 0;
  for (int64_t first = 0; first < y.numel(); first += width) {
    const RowError row = row_error(p + first, q + first, width);
    if (row.difference == 0) continue;
    const double error =
        exact || row.size == 0 ? std::sqrt(row.difference) : std::sqrt(row.difference / row.size);
    if (error <= result.error) continue;
    result.error = error;
    at = first + row.worst;
  }
  result.bound = exact ? 0 : tolerance;
  result.agrees = result.error <= result.bound;
  if (!result.agrees) {
    result.where = fmt::format("at {}: {:.6g} against {:.6g}", index_text(y, at), p[at], q[at]);
  }
  return result;
}

/// How far below the best logit of a row `id` lies, relative to the row; infinite for an id that it
/// has no logit for. `draft_ids`: of the columns; empty: every id is its own column.
double below_best(const double* logits, int64_t width, int64_t id,
                  const std::vector<int64_t>& draft_ids) {
  const auto found = std::find(draft_ids.begin(), draft_ids.end(), id);
  const int64_t column = draft_ids.empty() ? id : found - draft_ids.begin();
  if (column < 0 || column >= width) return INFINITY;
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) {
    squares += std::isfinite(logits[i]) ? logits[i] * logits[i] : 0.0;
  }
  const double gap = *std::max_element(logits, logits + width) - logits[column];
  return std::isnan(gap) ? INFINITY : gap / std::sqrt(std::max(squares, 1e-300));
}

/// Choices may differ where two logits are equal but for rounding: the error is how far below the
/// best of b's logits either lies. [.., B-1] target ids, [.., K, V] logits.
StageResult compare_choices(const at::Tensor& a, const at::Tensor& b, const at::Tensor& logits_b,
                            double tolerance, const std::vector<int64_t>& draft_ids) {
  StageResult result = compare_values("proposals", a, b, tolerance);
  if (result.agrees || a.sizes() != b.sizes() || b.is_floating_point()) return result;
  const int64_t slots = logits_b.size(-2), proposing = b.size(-1), width = logits_b.size(-1);
  const bool fits = width > 0 && proposing > 0 && slots >= proposing &&
                    logits_b.numel() / width / slots == b.numel() / proposing;
  if (!fits) return result;  // the logits' own stage says what is wrong with them
  const at::Tensor x = a.to(at::kLong).contiguous(), y = b.to(at::kLong).contiguous(),
                   rows = logits_b.to(at::kDouble).contiguous();
  result.error = 0;
  result.bound = tolerance;
  for (int64_t i = 0; i < y.numel(); ++i) {
    // Proposing slots are the last ones of a block.
    const int64_t row = i / proposing * slots + slots - proposing + i % proposing;
    const double* logits = rows.const_data_ptr<double>() + row * width;
    for (const at::Tensor* ids : {&x, &y}) {
      const int64_t id = ids->const_data_ptr<int64_t>()[i];
      result.error = std::max(result.error, below_best(logits, width, id, draft_ids));
    }
  }
  result.agrees = result.error <= tolerance;
  if (result.agrees) result.where.clear();
  return result;
}

/// Slots that neither side trains may say anything.
StageResult compare_labels(const Stages& a, const Stages& b, double tolerance) {
  at::Tensor x = *a.find("labels"), y = *b.find("labels");
  const at::Tensor *weights_a = a.find("weights"), *weights_b = b.find("weights");
  if (weights_a && weights_b && weights_a->sizes() == x.sizes() &&
      weights_b->sizes() == y.sizes()) {
    const at::Tensor untrained = weights_a->eq(0).logical_and(weights_b->eq(0));
    x = x.masked_fill(untrained, -1);
    y = y.masked_fill(untrained, -1);
  }
  return compare_values("labels", x, y, tolerance);
}

}  // namespace

void Stages::add(const std::string& name, const at::Tensor& value) {
  const at::Tensor rows = value.detach().clone();
  for (auto& [known, tensor] : all_) {
    if (known != name) continue;
    tensor = at::cat({tensor, rows});
    return;
  }
  all_.emplace_back(name, rows);
}

const at::Tensor* Stages::find(const std::string& name) const {
  for (const auto& [known, tensor] : all_) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

std::vector<BlockPlace> telling_anchors(const block::BlockRule& rule, const data::Dataset& dataset,
                                        int64_t random, uint64_t seed) {
  std::vector<BlockPlace> places;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    const auto length = static_cast<int64_t>(dataset.document_ids(d).size());
    std::set<int64_t> anchors = {0, 1, length - 2, length - 1, length - rule.block_size};
    for (const block::LayerRule& layer : rule.layers) {
      if (layer.window == 0) continue;
      anchors.insert({layer.window - 1, layer.window, layer.window + 1});
    }
    for (int64_t i = 0; i < random; ++i) {
      anchors.insert(static_cast<int64_t>(
          uniform_below(static_cast<uint64_t>(length),
                        {seed, static_cast<uint64_t>(d), static_cast<uint64_t>(i)})));
    }
    for (const int64_t anchor : anchors) {
      if (anchor >= 0 && anchor < length) places.push_back({d, anchor});
    }
  }
  return places;
}

std::vector<StageResult> compare_stages(const Stages& a, const Stages& b, double tolerance,
                                        const std::vector<int64_t>& draft_ids) {
  std::vector<StageResult> results;
  for (const auto& [name, value] : a.all()) {
    const at::Tensor* other = b.find(name);
    if (!other) continue;
    const at::Tensor* logits = b.find("logits");
    if (name == "proposals" && logits && logits->dim() >= 2 && other->dim() >= 1) {
      results.push_back(compare_choices(value, *other, *logits, tolerance, draft_ids));
    } else if (name == "labels") {
      results.push_back(compare_labels(a, b, tolerance));
    } else {
      results.push_back(compare_values(name, value, *other, tolerance));
    }
  }
  return results;
}

double stage_tolerance(nn::Compute compute) {
  // The same maths in another order through a few layers: some hundred roundings of 2^-24 each, or
  // of 2^-9, whose errors add as a random walk.
  return compute == nn::Compute::kF32 ? 3e-4 : 0.03;
}

std::string stage_table(const std::vector<StageResult>& results, const std::string& a,
                        const std::string& b) {
  std::string text = fmt::format("{:<18} {:<18} {:>10} {:>8}  {}\n", "stage", "shape", "error",
                                 "bound", a + " = " + b);
  const StageResult* first = nullptr;
  for (const StageResult& result : results) {
    if (!result.agrees && !first) first = &result;
    text += fmt::format("{:<18} {:<18} {:>10.2e} {:>8.0e}  {}\n", result.name, result.shape,
                        result.error, result.bound, result.agrees ? "yes" : "NO   " + result.where);
  }
  if (first) {
    text += fmt::format("\nfirst difference: {}: {} ({} against {})\n", first->name, first->where,
                        a, b);
  }
  return text;
}

Json stage_json(const std::vector<StageResult>& results) {
  Json json = Json::array();
  for (const StageResult& result : results) {
    json.push_back({{"stage", result.name},
                    {"shape", result.shape},
                    {"agrees", result.agrees},
                    {"error", result.error},
                    {"bound", result.bound},
                    {"where", result.where}});
  }
  return json;
}

}  // namespace dflash::doctor
