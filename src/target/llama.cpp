#include "target/llama.h"

#include "base/error.h"
#include "nn/norm.h"
#include "nn/shapes.h"
#include "target/llama_weights.h"
#include "target/taps.h"

namespace dflash::target {
namespace {

class LlamaState final : public State {
 public:
  LlamaState(const LlamaTarget* owner, const LlamaConfig& config, nn::Compute storage)
      : owner_(owner) {
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      layers.emplace_back(config.num_kv_heads, config.head_dim, storage);
    }
  }

  void commit(int64_t rows) override {
    DF_ASSERT(rows >= 0 && rows <= pending_, "rows={} pending={}", rows, pending_);
    length_ += rows;
    pending_ = 0;
  }

  void expect(int64_t rows) { pending_ = rows; }
  int64_t pending() const { return pending_; }
  const LlamaTarget* owner() const { return owner_; }

  std::vector<nn::KvBuffer> layers;  // rows past length + pending are leftovers, never read

 private:
  const LlamaTarget* owner_;
};

}  // namespace

/// One pass: the states behind the rows and what every row may attend to.
struct LlamaTarget::Pass {
  struct Part {
    LlamaState* state = nullptr;
    int64_t first_row = 0, num_rows = 0;
  };
  std::vector<Part> parts;
  std::vector<nn::RowKeys> keys;  // buffers are set per layer
  at::Tensor pos_R;
  int64_t num_rows = 0;
};

std::unique_ptr<State> LlamaTarget::new_state() const {
  return std::make_unique<LlamaState>(this, llama_, compute_);
}

LlamaTarget::Pass LlamaTarget::begin_pass(const Rows& rows) const {
  Pass pass;
  pass.pos_R = rows.pos_R.contiguous();
  pass.num_rows = rows.ids_R.size(0);
  pass.keys.resize(static_cast<size_t>(pass.num_rows));
  int64_t next = 0;
  for (const Segment& segment : rows.segments) {
    auto* state = dynamic_cast<LlamaState*>(segment.state);
    DF_ASSERT(state && state->owner() == this, "a state of another target");
    DF_ASSERT(state->pending() == 0, "pending={}: commit before the next forward",
              state->pending());
    DF_ASSERT(segment.first_row == next && segment.num_rows > 0, "first={} expected={} rows={}",
              segment.first_row, next, segment.num_rows);
    for (const Pass::Part& other : pass.parts) DF_ASSERT(other.state != state, "a state twice");
    const int64_t length = state->length();
    if (length + segment.num_rows > config_.max_positions) {
      fail(
          "target: the context of {} tokens is longer than the model's {}\n  hint: shorten the "
          "prompt or the answer",
          length + segment.num_rows, config_.max_positions);
    }
    for (int64_t i = 0; i < segment.num_rows; ++i) {
      pass.keys[static_cast<size_t>(next + i)].ranges[0] = {.end = length + i + 1};
    }
    pass.parts.push_back({state, next, segment.num_rows});
    next += segment.num_rows;
  }
  DF_ASSERT(next == pass.num_rows, "segments cover {} of {} rows", next, pass.num_rows);
  const int64_t* positions = pass.pos_R.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < pass.num_rows; ++row) {
    if (positions[row] < 0 || positions[row] >= config_.max_positions) {
      fail("target: row {}: position: expected 0 to {}, got {}", row, config_.max_positions - 1,
           positions[row]);
    }
  }
  return pass;
}

void LlamaTarget::attention(int64_t layer_idx, Pass& pass, at::Tensor& h_RD) const {
  const Layer& layer = layers_[static_cast<size_t>(layer_idx)];
  const int64_t heads = llama_.num_heads, kv_heads = llama_.num_kv_heads;
  const at::Tensor x_RD = nn::rms_norm(h_RD, layer.input_norm_D, llama_.rms_norm_eps);
  const at::Tensor qkv_RHE =
      layer.qkv.forward(x_RD).view({pass.num_rows, heads + 2 * kv_heads, llama_.head_dim});
  const at::Tensor qk_RHE = rope_.apply(qkv_RHE.narrow(1, 0, heads + kv_heads), pass.pos_R);
  const at::Tensor k_RGE = qk_RHE.narrow(1, heads, kv_heads);
  const at::Tensor v_RGE = qkv_RHE.narrow(1, heads + kv_heads, kv_heads);
  const auto num_parts = static_cast<int64_t>(pass.parts.size());
  for (const Pass::Part& part : pass.parts) {  // may throw, so not among the threads
    part.state->layers[static_cast<size_t>(layer_idx)].reserve(part.state->length() +
                                                               part.num_rows);
  }
#pragma omp parallel for schedule(dynamic) if (num_parts >= 8)
  for (int64_t i = 0; i < num_parts; ++i) {
    const Pass::Part& part = pass.parts[static_cast<size_t>(i)];
    nn::KvBuffer& buffer = part.state->layers[static_cast<size_t>(layer_idx)];
    const int64_t end_row = part.first_row + part.num_rows;
    buffer.write(part.state->length(), k_RGE, v_RGE, {part.first_row, end_row});
    for (int64_t row = part.first_row; row < end_row; ++row) {
      pass.keys[static_cast<size_t>(row)].ranges[0].buffer = &buffer;
    }
  }
  layer.o.add_to(nn::attend(qk_RHE.narrow(1, 0, heads), pass.keys), h_RD);
}

void LlamaTarget::mlp(const Layer& layer, at::Tensor& h_RD) const {
  const at::Tensor x_RD = nn::rms_norm(h_RD, layer.post_norm_D, llama_.rms_norm_eps);
  layer.down.add_to(nn::swiglu(layer.gate_up.forward(x_RD)), h_RD);
}

Hidden LlamaTarget::forward(const Rows& rows, const ForwardOptions& options) const {
  c10::NoGradGuard no_grad;
  const int64_t num_rows = rows.ids_R.dim() == 1 ? rows.ids_R.size(0) : -1;
  nn::expect_shape(rows.ids_R, {num_rows}, "ids_R");
  nn::expect_shape(rows.pos_R, {num_rows}, "pos_R");
  TapWriter taps(options.taps, num_rows, llama_.hidden_size, llama_.num_layers);
  Pass pass = begin_pass(rows);
  at::Tensor h_RD = table_.embed(rows.ids_R);
  // All checks are behind us: from here the states hold pending rows.
  for (const Pass::Part& part : pass.parts) part.state->expect(part.num_rows);
  taps.take(-1, h_RD);
  for (int64_t layer = 0; layer < llama_.num_layers; ++layer) {
    attention(layer, pass, h_RD);
    mlp(layers_[static_cast<size_t>(layer)], h_RD);
    taps.take(layer, h_RD);
  }
  return {.last_RD = h_RD, .taps_RF = taps.taps_RF()};
}

at::Tensor LlamaTarget::final_norm(const at::Tensor& last_RD) const {
  c10::NoGradGuard no_grad;
  nn::expect_shape(last_RD, {-1, llama_.hidden_size}, "last_RD");
  return nn::rms_norm(last_RD, norm_D_, llama_.rms_norm_eps);
}

}  // namespace dflash::target
