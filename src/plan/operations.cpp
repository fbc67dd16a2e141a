#include "plan/operations.h"

#include <algorithm>

namespace dflash::plan {
namespace {

struct Weight {
  const char* name;
  int64_t out, in, rows, count;
  bool input_gradient;
};

std::vector<Weight> weights_of(const DrafterShape& d, int64_t tokens, int64_t anchors) {
  const int64_t rows = anchors * d.block_size, layers = d.num_layers;
  return {{"fc", d.hidden_size, d.features(), tokens, 1, false},
          {"context k and v", 2 * d.kv_width(), d.hidden_size, tokens, layers, true},
          {"q, k and v", d.q_width() + 2 * d.kv_width(), d.hidden_size, rows, layers, true},
          {"o", d.hidden_size, d.q_width(), rows, layers, true},
          {"gate and up", 2 * d.intermediate_size, d.hidden_size, rows, layers, true},
          {"down", d.hidden_size, d.intermediate_size, rows, layers, true}};
}

/// [out, in] of every matrix of a layer as the optimizer sees it, q, k and v apart.
std::vector<std::pair<int64_t, int64_t>> layer_shapes(const DrafterShape& d) {
  const int64_t h = d.hidden_size, i = d.intermediate_size;
  return {{d.q_width(), h},
          {d.kv_width(), h},
          {d.kv_width(), h},
          {h, d.q_width()},
          {i, h},
          {i, h},
          {h, i}};
}

}  // namespace

int64_t DrafterShape::layer_matrices() const {
  int64_t sum = 0;
  for (const auto& [out, in] : layer_shapes(*this)) sum += out * in;
  return sum;
}

int64_t DrafterShape::matrices() const {
  return hidden_size * features() + num_layers * layer_matrices();
}

int64_t DrafterShape::vectors() const {
  return 2 * hidden_size + num_layers * (2 * hidden_size + 2 * head_dim);
}

double total_operations(const std::vector<Product>& products) {
  double sum = 0;
  for (const Product& product : products) sum += product.operations();
  return sum;
}

std::vector<Product> drafter_products(const DrafterShape& drafter, int64_t tokens,
                                      int64_t anchors) {
  std::vector<Product> out;
  for (const Weight& w : weights_of(drafter, tokens, anchors)) {
    out.push_back({w.name, w.rows, w.out, w.in, w.count});
  }
  return out;
}

std::vector<Product> drafter_gradients(const DrafterShape& drafter, int64_t tokens,
                                       int64_t anchors) {
  std::vector<Product> out;
  for (const Weight& w : weights_of(drafter, tokens, anchors)) {
    const std::string name = w.name;
    if (w.input_gradient) out.push_back({name + ", dX", w.rows, w.in, w.out, w.count});
    out.push_back({name + ", dW", w.out, w.in, w.rows, w.count});
  }
  return out;
}

double block_attention_operations(const DrafterShape& d, int64_t anchors, double keys) {
  const auto queries = static_cast<double>(anchors * d.block_size * d.num_heads * d.num_layers);
  return 4.0 * queries * (keys + static_cast<double>(d.block_size)) *
         static_cast<double>(d.head_dim);
}

double head_operations(const DrafterShape& d, int64_t slots) {
  return 4.0 * static_cast<double>(slots) * static_cast<double>(d.vocab_size) *
         static_cast<double>(d.hidden_size);
}

double target_operations(const TargetShape& t, int64_t tokens, double context) {
  const auto rows = static_cast<double>(tokens);
  const auto head = static_cast<double>(t.vocab_size) * static_cast<double>(t.hidden_size);
  const double attention = 2.0 * context * static_cast<double>(t.q_width * t.attention_blocks);
  return rows * (2.0 * (static_cast<double>(t.active_parameters) + head) + attention);
}

double newton_schulz_operations(int64_t rows, int64_t columns, int64_t steps) {
  const auto least = static_cast<double>(std::min(rows, columns));
  const auto most = static_cast<double>(std::max(rows, columns));
  const double pairs = static_cast<double>(steps / 2), odd = static_cast<double>(steps % 2);
  return (pairs + odd) * 3 * least * least * most + (4 * pairs + odd) * least * least * least;
}

double muon_operations(const DrafterShape& d, int64_t steps) {
  double layer = 0;
  for (const auto& [out, in] : layer_shapes(d)) layer += newton_schulz_operations(out, in, steps);
  return newton_schulz_operations(d.hidden_size, d.features(), steps) +
         static_cast<double>(d.num_layers) * layer;
}

double update_bytes(const DrafterShape& d, Optimizer optimizer) {
  // AdamW reads weight, gradient and two moments and writes three of them. Muon: norm and momentum,
  // direction, rounding and the addition pass over the matrix.
  const double per_matrix = optimizer == Optimizer::kAdamW ? 28 : 48;
  return per_matrix * static_cast<double>(d.matrices()) + 28.0 * static_cast<double>(d.vectors());
}

}  // namespace dflash::plan
