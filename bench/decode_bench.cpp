// Milliseconds of one target pass of 1, 8 and 16 rows, prefill speed, and the memory read rate of
// the same run: a pass cannot be faster than reading the weights once.
//
//   decode_bench [model.gguf or folder] [f32|bf16] [context rows]
#include <c10/core/GradMode.h>
#include <omp.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/timer.h"
#include "common.h"
#include "target/load.h"

namespace dflash {
namespace {

constexpr int kRounds = 15;

/// Bytes per second of a plain sum over `bytes`, all threads.
double read_rate(int64_t bytes) {
  std::vector<uint64_t> buffer(static_cast<size_t>(bytes / 8), 1);
  const uint64_t* data = buffer.data();
  const auto count = static_cast<int64_t>(buffer.size());
  std::vector<double> rates;
  uint64_t check = 0;
  for (int round = 0; round < 7; ++round) {
    const Timer timer;
    uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static)
    for (int64_t i = 0; i < count; ++i) sum += data[i];
    rates.push_back(static_cast<double>(bytes) / timer.seconds());
    check += sum;
  }
  if (check == 0) std::printf("impossible\n");
  return median(rates);
}

/// Weights that one pass reads, head included, embedding rows not.
int64_t pass_bytes(const target::Target& model) {
  const target::TargetConfig& c = model.config();
  const int64_t attention = c.head_dim * (2 * c.num_heads + 2 * c.num_kv_heads) * c.hidden_size;
  const int64_t mlp = 3 * c.intermediate_size * c.hidden_size;
  const int64_t weights = c.num_layers * (attention + mlp) + c.vocab_size * c.hidden_size;
  return weights * (model.compute() == nn::Compute::kBF16 ? 2 : 4);
}

class Sequence {
 public:
  explicit Sequence(const target::Target& model) : model_(model), state_(model.new_state()) {}

  /// Forward of `rows` rows (made-up ids), and the head's choice for every row when asked.
  void pass(int64_t rows, bool with_head, int64_t commit) {
    std::vector<int64_t> ids, positions;
    for (int64_t i = 0; i < rows; ++i) {
      ids.push_back((state_->length() * 31 + i * 17 + 1000) % model_.config().vocab_size);
      positions.push_back(state_->length() + i);
    }
    const std::vector<target::Segment> segments = {{state_.get(), 0, rows}};
    const target::Hidden hidden = model_.forward(
        {at::tensor(ids, at::kLong), at::tensor(positions, at::kLong), segments}, {});
    if (with_head) model_.head().argmax(model_.final_norm(hidden.last_RD));
    state_->commit(commit);
  }

 private:
  const target::Target& model_;
  std::unique_ptr<target::State> state_;
};

void run(const std::string& path, nn::Compute compute, int64_t context) {
  const auto model = target::load_target(path, {.compute = compute});
  const int64_t bytes = pass_bytes(*model);
  const double rate = read_rate(bytes);
  const double floor_ms = 1e3 * static_cast<double>(bytes) / rate;
  std::printf("%s, %s, %d threads, context %ld\n", model->storage().c_str(),
              nn::kernel_name(compute).c_str(), nn::num_threads(), context);
  std::printf("weights of a pass %.1f MB, memory read %.1f GB/s: %.2f ms\n",
              static_cast<double>(bytes) / 1e6, rate / 1e9, floor_ms);
  Sequence sequence(*model);
  if (context > 0) sequence.pass(context, false, context);
  const std::vector<int64_t> widths = {1, 2, 4, 8, 16};
  std::vector<std::vector<double>> body(widths.size()), whole(widths.size());
  for (int round = 0; round < kRounds; ++round) {  // widths in turn: noise hits all alike
    for (size_t w = 0; w < widths.size(); ++w) {
      Timer timer;
      sequence.pass(widths[w], false, 0);
      body[w].push_back(1e3 * timer.seconds());
      timer.restart();
      sequence.pass(widths[w], true, 0);
      whole[w].push_back(1e3 * timer.seconds());
    }
  }
  std::printf("rows  blocks ms  with head ms  of 1 row  of reading\n");
  for (size_t w = 0; w < widths.size(); ++w) {
    std::printf("%4ld  %9.2f  %12.2f  %8.2f  %10.2f\n", widths[w], median(body[w]),
                median(whole[w]), median(whole[w]) / median(whole[0]), median(whole[w]) / floor_ms);
  }
  std::vector<double> prefill;
  for (int round = 0; round < 3; ++round) {
    Sequence fresh(*model);
    const Timer timer;
    fresh.pass(512, false, 512);
    prefill.push_back(512 / timer.seconds());
  }
  std::printf("prefill of 512 rows: %.0f tok/s\n", median(prefill));
}

}  // namespace
}  // namespace dflash

int main(int argc, char** argv) {
  return dflash::run_on_target(argc, argv, dflash::run);
}
