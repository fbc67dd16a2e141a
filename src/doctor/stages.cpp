// Anchors, comparison and report; the two paths are in training_stages.cpp and decoding_stages.cpp.
#include "doctor/stages.h"

#include <ATen/ops/cat.h>

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

/// Argmaxes may differ where two logits are equal but for rounding: the error is how far below the
/// best of b's logits the choice of a lies, relative to the row. [.., B-1] ids, [.., K, V] logits.
StageResult compare_choices(const at::Tensor& a, const at::Tensor& b, const at::Tensor& logits_a,
                            const at::Tensor& logits_b, double tolerance) {
  StageResult result = compare_values("proposals", a, b, tolerance);
  if (result.agrees || a.sizes() != b.sizes() || logits_a.sizes() != logits_b.sizes()) {
    return result;
  }
  const int64_t slots = logits_b.size(-2), proposing = b.size(-1), width = logits_b.size(-1);
  const at::Tensor x = logits_a.to(at::kDouble).contiguous(),
                   y = logits_b.to(at::kDouble).contiguous();
  result.error = 0;
  result.bound = tolerance;
  for (int64_t row = 0; row < y.numel() / width; ++row) {
    if (row % slots < slots - proposing) continue;  // proposing slots are the last ones
    const auto *p = x.const_data_ptr<double>() + row * width,
               *q = y.const_data_ptr<double>() + row * width;
    const int64_t choice = std::max_element(p, p + width) - p;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += std::isfinite(q[i]) ? q[i] * q[i] : 0.0;
    const double gap = *std::max_element(q, q + width) - q[choice];
    result.error = std::max(result.error, gap / std::sqrt(std::max(squares, 1e-300)));
  }
  result.agrees = result.error <= tolerance;
  if (result.agrees) result.where.clear();
  return result;
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

std::vector<StageResult> compare_stages(const Stages& a, const Stages& b, double tolerance) {
  std::vector<StageResult> results;
  for (const auto& [name, value] : a.all()) {
    const at::Tensor* other = b.find(name);
    if (!other) continue;
    const at::Tensor *logits_a = a.find("logits"), *logits_b = b.find("logits");
    results.push_back(name == "proposals" && logits_a && logits_b
                          ? compare_choices(value, *other, *logits_a, *logits_b, tolerance)
                          : compare_values(name, value, *other, tolerance));
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
