// What one pass of a target costs beside what this machine can do, as one JSON object: milliseconds
// by number of rows and by context, the memory rate (a pass cannot be faster than reading the
// weights once), and the prompt's products beside the rate of the same products alone.
//
//   decode_bench [model.gguf or folder] [f32|bf16|auto] [context rows]
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <omp.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/timer.h"
#include "common.h"
#include "io/gguf.h"
#include "nn/linear.h"
#include "nn/packed.h"
#include "target/load.h"

namespace dflash {
namespace {

constexpr int kRounds = 15;
constexpr int64_t kPromptRows = 512;

/// Bytes per second of a plain sum over `bytes`, all threads.
double read_rate(const std::vector<uint64_t>& buffer) {
  const uint64_t* data = buffer.data();
  const auto count = static_cast<int64_t>(buffer.size());
  const Timer timer;
  uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static)
  for (int64_t i = 0; i < count; ++i) sum += data[i];
  if (sum == 0) std::printf("impossible\n");
  return static_cast<double>(count) * 8 / timer.seconds();
}

/// Parameters of the products of all blocks, and of the head.
int64_t block_weights(const target::TargetConfig& c) {
  const int64_t attention = c.head_dim * (2 * c.num_heads + 2 * c.num_kv_heads) * c.hidden_size;
  return c.num_layers * (attention + 3 * c.intermediate_size * c.hidden_size);
}
int64_t head_weights(const target::TargetConfig& c) {
  return c.vocab_size * c.hidden_size;
}

/// Bytes that one pass reads, head included, embedding rows not.
int64_t pass_bytes(const target::Target& model, const std::string& path) {
  const bool bf16 = model.compute() == nn::Compute::kBF16;
  if (nn::PackedWeight::keeps_blocks(model.compute()) && path.ends_with(".gguf") &&
      model.config().tied_embeddings) {
    int64_t bytes = 0;
    for (const io::GgufTensor& tensor : io::GgufFile::open(path)->tensors()) {
      bytes += static_cast<int64_t>(tensor.bytes.size());
    }
    return bytes;
  }
  return (block_weights(model.config()) + head_weights(model.config())) * (bf16 ? 2 : 4);
}

class Sequence {
 public:
  explicit Sequence(const target::Target& model) : model_(model), state_(model.new_state()) {}

  /// Milliseconds of a forward of `rows` rows (made-up ids), and the head's choice for every row
  /// when asked.
  double pass(int64_t rows, bool with_head, int64_t commit) {
    std::vector<int64_t> ids, positions;
    for (int64_t i = 0; i < rows; ++i) {
      ids.push_back((state_->length() * 31 + i * 17 + 1000) % model_.config().vocab_size);
      positions.push_back(state_->length() + i);
    }
    const std::vector<target::Segment> segments = {{state_.get(), 0, rows}};
    const Timer timer;
    const target::Hidden hidden = model_.forward(
        {at::tensor(ids, at::kLong), at::tensor(positions, at::kLong), segments}, {});
    if (with_head) model_.head().argmax(model_.final_norm(hidden.last_RD));
    state_->commit(commit);
    return 1e3 * timer.seconds();
  }

 private:
  const target::Target& model_;
  std::unique_ptr<target::State> state_;
};

/// Passes of 1 to 16 rows in turn, so that noise hits all alike, and the memory rate between them.
Json widths(const target::Target& model, int64_t context, int64_t bytes) {
  Sequence sequence(model);
  if (context > 0) sequence.pass(context, false, context);
  const std::vector<int64_t> rows = {1, 2, 4, 8, 16};
  const std::vector<uint64_t> buffer(static_cast<size_t>(bytes / 8), 1);
  std::vector<double> rates;
  std::vector<std::vector<double>> ms(rows.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t w = 0; w < rows.size(); ++w) ms[w].push_back(sequence.pass(rows[w], true, 0));
    rates.push_back(read_rate(buffer));
  }
  const double floor_ms = 1e3 * static_cast<double>(bytes) / median(rates);
  Json out = {{"bytes", bytes},
              {"read_gb_per_second", median(rates) / 1e9},
              {"floor_ms", floor_ms},
              {"memory_share", floor_ms / median(ms[0])}};
  for (size_t w = 0; w < rows.size(); ++w) {
    out["rows"].push_back({{"rows", rows[w]},
                           {"ms", median(ms[w])},
                           {"fastest_ms", *std::min_element(ms[w].begin(), ms[w].end())},
                           {"of_one", median(ms[w]) / median(ms[0])}});
  }
  return out;
}

/// Milliseconds of a pass of one row by context.
Json by_context(const target::Target& model) {
  const std::vector<int64_t> contexts = {256, 1024, 4096};
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const int64_t context : contexts) {
    if (context >= model.config().max_positions) break;
    sequences.push_back(std::make_unique<Sequence>(model));
    for (int64_t at = 0; at < context; at += 256) sequences.back()->pass(256, false, 256);
  }
  std::vector<std::vector<double>> ms(sequences.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < sequences.size(); ++i) ms[i].push_back(sequences[i]->pass(1, true, 0));
  }
  Json out;
  for (size_t i = 0; i < sequences.size(); ++i) {
    out.push_back({{"context", contexts[i]}, {"ms", median(ms[i])}});
  }
  return out;
}

/// The products of a block alone, each as fast as ATen or our kernels do it: FLOP/s over a block.
class BlockProducts {
 public:
  BlockProducts(const target::TargetConfig& c, nn::Compute compute) : compute_(compute) {
    const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
    add(q + 2 * kv, c.hidden_size);
    add(c.hidden_size, q);
    add(2 * c.intermediate_size, c.hidden_size);
    add(c.hidden_size, c.intermediate_size);
  }

  double rate() {
    double seconds = 0, operations = 0;
    for (Shape& shape : shapes_) {
      const auto time = [](const auto& run) {
        const Timer timer;
        for (int i = 0; i < 4; ++i) run();
        return timer.seconds() / 4;
      };
      const double ours = time([&] { shape.linear.forward(shape.x); });
      const double aten = time([&] { at::mm(shape.x_aten, shape.weight_IO); });
      seconds += std::min(ours, aten);
      operations += 2.0 * static_cast<double>(kPromptRows * shape.weight_IO.numel());
    }
    return operations / seconds;
  }

 private:
  struct Shape {
    nn::Linear linear;
    at::Tensor x, x_aten, weight_IO;  // ATen's in what is computed
  };
  void add(int64_t out, int64_t in) {
    const at::Tensor weight = at::randn({out, in}).to(at::kBFloat16),
                     x = at::randn({kPromptRows, in});
    const at::ScalarType type = compute_ == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
    shapes_.push_back({nn::Linear(weight, {}, compute_), x, x.to(type), weight.to(type).t()});
    shapes_.back().linear.pack();
  }
  nn::Compute compute_;
  std::vector<Shape> shapes_;
};

Json prompt(const target::Target& model) {
  BlockProducts products(model.config(), model.compute());
  std::vector<double> speeds, rates;
  for (int round = 0; round < 7; ++round) {
    rates.push_back(products.rate());
    Sequence fresh(model);
    speeds.push_back(kPromptRows / (1e-3 * fresh.pass(kPromptRows, false, kPromptRows)));
  }
  const double operations = 2.0 * static_cast<double>(block_weights(model.config()));
  return {{"rows", kPromptRows},
          {"tokens_per_second", median(speeds)},
          {"products_gflops", operations * median(speeds) / 1e9},
          {"gemm_gflops", median(rates) / 1e9},
          {"gemm_share", operations * median(speeds) / median(rates)}};
}

void run(const std::string& path, nn::Compute compute, int64_t context) {
  const c10::NoGradGuard no_grad;
  const auto model = target::load_target(path, {.compute = compute});
  Json out = {{"target", model->storage()},
              {"kernels", nn::kernel_name(compute)},
              {"threads", nn::num_threads()},
              {"context", context},
              {"pass", widths(*model, context, pass_bytes(*model, path))},
              {"by_context", by_context(*model)}};
  out["prompt"] = prompt(*model);
  std::printf("%s\n", out.dump(2).c_str());
}

}  // namespace
}  // namespace dflash

int main(int argc, char** argv) {
  return dflash::run_on_target(argc, argv, dflash::run);
}
