// Where a drafter's weights start: random, or copied from blocks of the target.
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/rng.h"
#include "draft/drafter.h"
#include "nn/shapes.h"

namespace dflash::draft {
namespace {

constexpr double kInitStd = 0.02;

// FNV-1a; keys a tensor's draws by its name, so they depend on nothing else of the drafter.
uint64_t name_key(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

at::Tensor normal_tensor(const std::vector<int64_t>& shape, uint64_t seed, uint64_t key) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* values = tensor.data_ptr<float>();
  at::parallel_for(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i] = static_cast<float>(kInitStd * normal01({seed, key, static_cast<uint64_t>(i)}));
    }
  });
  return tensor;
}

}  // namespace

std::shared_ptr<Drafter> Drafter::create(const DraftSpec& spec, nn::Compute compute,
                                         uint64_t seed) {
  check_spec(spec);
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, shape] : parameter_shapes(spec)) {
    if (shape.size() == 2) {
      weights[name] = normal_tensor(shape, seed, name_key(name));
    } else {
      weights[name] =
          name.ends_with(".bias") ? at::zeros(shape, at::kFloat) : at::ones(shape, at::kFloat);
    }
  }
  return from_weights(spec, compute, weights);
}

void Drafter::init_from_target_layers(const std::vector<NamedTensors>& weights,
                                      const at::Tensor& final_norm_D) {
  const at::NoGradGuard no_grad;
  if (static_cast<int64_t>(weights.size()) != spec_.num_layers) {
    fail(
        "start from target layers: expected one target layer for each of {} drafter layers, got "
        "{}",
        spec_.num_layers, weights.size());
  }
  for (size_t l = 0; l < weights.size(); ++l) {
    for (const auto& [name, tensor] : weights[l]) {
      const auto found = parameters_.find(fmt::format("layers.{}.{}", l, name));
      if (found == parameters_.end()) {
        fail(
            "start from target layers: {}: the drafter has no such parameter\n  hint: only "
            "Llama-like target layers (q, k, v, o, gate, up, down, norms) can be copied",
            name);
      }
      const at::Tensor& own = found->second;
      if (own.sizes() != tensor.sizes()) {
        fail(
            "start from target layers: {}: expected [{}] (the drafter's), got [{}] (the "
            "target's)\n  hint: give the drafter the target's sizes of heads and MLP",
            name, fmt::join(own.sizes(), ", "), fmt::join(tensor.sizes(), ", "));
      }
      own.copy_(tensor);
    }
  }
  if (!final_norm_D.defined()) return;
  nn::expect_shape(final_norm_D, {spec_.hidden_size}, "the target's final norm");
  norm_D_.copy_(final_norm_D);
}

}  // namespace dflash::draft
