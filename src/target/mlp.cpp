#include "target/mlp.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "nn/profile_work.h"

namespace dflash::target {
namespace {

class DenseMlp final : public Mlp {
 public:
  DenseMlp(nn::Linear gate_up, nn::Linear down)
      : gate_up_(std::move(gate_up)), down_(std::move(down)) {}
  void add_to(const at::Tensor& x_RD, at::Tensor& h_RD) const override {
    const int64_t rows = x_RD.size(0);
    profile::Range part("target", "gate and up", [&] { return nn::work_of(gate_up_, rows); });
    const at::Tensor inner_RI = gate_up_.swiglu(x_RD);
    part.next("down", [&] { return nn::work_of(down_, rows); });
    down_.add_to(inner_RI, h_RD);
  }

 private:
  nn::Linear gate_up_;  // [2I, D] = gate | up
  nn::Linear down_;     // [D, I]
};

/// Router and gate of the shared expert as one f32 product: a choice among experts is worth the
/// exact sum.
nn::Linear router(const LayerReader& reader) {
  const int64_t hidden = reader.config().hidden_size;
  std::vector<at::Tensor> rows = {reader.f32("mlp.gate.weight")};
  if (reader.config().moe.shared_expert_size > 0) {
    rows.push_back(reader.f32("mlp.shared_expert_gate.weight").reshape({1, hidden}));
  }
  return packed_linear(at::cat(rows), {}, nn::Compute::kF32);
}

/// h[row_i] += weight_i * y[i].
void add_rows(const at::Tensor& y_ND, const std::vector<int64_t>& rows,
              const std::vector<float>& weights, at::Tensor& h_RD) {
  const int64_t width = h_RD.size(1);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* from = y_ND.const_data_ptr<float>() + static_cast<int64_t>(i) * width;
    float* to = h_RD.mutable_data_ptr<float>() + rows[i] * width;
    for (int64_t d = 0; d < width; ++d) to[d] += weights[i] * from[d];
  }
}

class MoeMlp final : public Mlp {
 public:
  explicit MoeMlp(const LayerReader& reader)
      : config_(reader.config().moe), router_(router(reader)), experts_(reader.experts()) {
    if (config_.shared_expert_size == 0) return;
    shared_.gate_up = reader.fused({"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"});
    shared_.down = reader.fused({"mlp.shared_expert.down_proj"});
  }

  /// Rows are gathered by expert; a row gets its experts' parts in ascending order of the experts,
  /// whoever else is in the pass.
  void add_to(const at::Tensor& x_RD, at::Tensor& h_RD) const override {
    const profile::Range part("target", "experts");
    const at::Tensor logits_RN = router_.forward(x_RD);
    const auto routes = route(logits_RN.narrow(1, 0, config_.num_experts), config_);
    std::vector<std::vector<int64_t>> rows(experts_.size());
    std::vector<std::vector<float>> weights(experts_.size());
    for (size_t row = 0; row < routes.size(); ++row) {
      for (const Route& to : routes[row]) {
        rows[static_cast<size_t>(to.expert)].push_back(static_cast<int64_t>(row));
        weights[static_cast<size_t>(to.expert)].push_back(to.weight);
      }
    }
    for (size_t e = 0; e < experts_.size(); ++e) {
      if (rows[e].empty()) continue;
      const at::Tensor x_ND = at::index_select(x_RD, 0, at::tensor(rows[e], at::kLong));
      add_rows(run(experts_[e], x_ND), rows[e], weights[e], h_RD);
    }
    if (config_.shared_expert_size > 0) add_shared(x_RD, logits_RN, h_RD);
  }

 private:
  using Expert = LayerReader::Expert;

  static at::Tensor run(const Expert& expert, const at::Tensor& x_ND) {
    return expert.down.forward(expert.gate_up.swiglu(x_ND));
  }

  void add_shared(const at::Tensor& x_RD, const at::Tensor& logits_RN, at::Tensor& h_RD) const {
    std::vector<int64_t> rows(static_cast<size_t>(x_RD.size(0)));
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> gates;
    const float* logits = logits_RN.const_data_ptr<float>();
    for (const int64_t row : rows) {
      gates.push_back(1 / (1 + std::exp(-logits[(row + 1) * logits_RN.size(1) - 1])));
    }
    add_rows(run(shared_, x_RD), rows, gates, h_RD);
  }

  MoeConfig config_;
  nn::Linear router_;  // [experts, D], and the shared expert's gate as the last row
  std::vector<Expert> experts_;
  Expert shared_;
};

}  // namespace

std::vector<std::vector<Route>> route(const at::Tensor& logits_RE, const MoeConfig& config) {
  const int64_t count = config.num_experts, chosen = config.experts_per_token;
  DF_ASSERT(logits_RE.size(1) == count && logits_RE.stride(1) == 1, "{} logits of {} experts",
            logits_RE.size(1), count);
  std::vector<std::vector<Route>> routes(static_cast<size_t>(logits_RE.size(0)));
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::vector<float> weight(static_cast<size_t>(count));
  for (size_t row = 0; row < routes.size(); ++row) {
    const float* logits =
        logits_RE.const_data_ptr<float>() + static_cast<int64_t>(row) * logits_RE.stride(0);
    const float top = *std::max_element(logits, logits + count);
    float total = 0;
    for (int64_t e = 0; e < count; ++e) total += weight[e] = std::exp(logits[e] - top);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + chosen, order.end(),
                      [&](int64_t a, int64_t b) {
                        return weight[a] > weight[b] || (weight[a] == weight[b] && a < b);
                      });
    std::sort(order.begin(), order.begin() + chosen);
    float kept = 0;
    for (int64_t i = 0; i < chosen; ++i) kept += weight[order[i]];
    const float scale = config.norm_topk_prob ? kept : total;
    for (int64_t i = 0; i < chosen; ++i) {
      routes[row].push_back({order[i], weight[order[i]] / scale});
    }
  }
  return routes;
}

std::unique_ptr<Mlp> make_mlp(const LayerReader& reader) {
  if (reader.config().is_moe(reader.layer())) return std::make_unique<MoeMlp>(reader);
  return std::make_unique<DenseMlp>(reader.fused({"mlp.gate_proj", "mlp.up_proj"}),
                                    reader.fused({"mlp.down_proj"}));
}

}  // namespace dflash::target
