#include "nn/norm.h"
#include "nn/profile_work.h"
#include "target/mixers.h"

namespace dflash::target {
namespace {

/// Rows of q_proj come head by head as [q | gate]: all q first, then all gates.
std::pair<at::Tensor, at::Tensor> split_gate(const at::Tensor& rows, int64_t heads) {
  const at::Tensor halves = rows.reshape({heads, 2, rows.size(0) / heads / 2, -1});
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] /= 2;
  return {halves.select(1, 0).reshape(shape), halves.select(1, 1).reshape(shape)};
}

nn::Linear gated_qkv(const LayerReader& reader) {
  const auto join = [&](const auto& read, const std::string& kind) {
    const auto [q, gate] = split_gate(read("self_attn.q_proj" + kind), reader.config().num_heads);
    return at::cat({q, read("self_attn.k_proj" + kind), read("self_attn.v_proj" + kind), gate});
  };
  at::Tensor bias;
  if (reader.config().attention_bias) {
    bias = join([&](const std::string& tail) { return reader.f32(tail); }, ".bias");
  }
  return packed_linear(
      join([&](const std::string& tail) { return reader.matrix(tail); }, ".weight"), bias,
      reader.compute());
}

/// Scores and mean of values of every row; keys and values of every sequence are read once.
profile::Work attention_work(const Pass& pass, int64_t q_width, int64_t kv_bytes) {
  profile::Work work;
  const auto seen = [&](int64_t row) {
    const nn::KeyRange& range = pass.keys[static_cast<size_t>(row)].ranges[0];
    return static_cast<double>(range.end - range.begin);
  };
  for (const Pass::Part& part : pass.parts) {
    for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      work.operations += 4 * seen(row) * static_cast<double>(q_width);
    }
    work.bytes += seen(part.rows.end - 1) * static_cast<double>(kv_bytes);
  }
  return work;
}

}  // namespace

AttentionLayer::AttentionLayer(const LayerReader& reader, const nn::Rope& rope)
    : layer_(reader.layer()),
      heads_(reader.config().num_heads),
      kv_heads_(reader.config().num_kv_heads),
      head_dim_(reader.config().head_dim),
      window_(reader.config().window(reader.layer())),
      eps_(reader.config().rms_norm_eps),
      gated_(reader.config().output_gate),
      rope_(rope) {
  qkv_ = gated_ ? gated_qkv(reader)
                : reader.fused({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  o_ = reader.fused({"self_attn.o_proj"});
  if (!reader.config().qk_norm) return;
  q_norm_E_ = reader.norm("self_attn.q_norm.weight");
  k_norm_E_ = reader.norm("self_attn.k_norm.weight");
}

void AttentionLayer::write_cache(Pass& pass, const at::Tensor& k_RGE,
                                 const at::Tensor& v_RGE) const {
  const auto layer = static_cast<size_t>(layer_);
  const auto num_parts = static_cast<int64_t>(pass.parts.size());
  for (const Pass::Part& part : pass.parts) {  // may throw, so not among the threads
    part.state->caches[layer].reserve(part.state->length() + part.rows.end - part.rows.begin);
  }
#pragma omp parallel for schedule(dynamic) if (num_parts >= 8)
  for (int64_t i = 0; i < num_parts; ++i) {
    const Pass::Part& part = pass.parts[static_cast<size_t>(i)];
    nn::KvBuffer& buffer = part.state->caches[layer];
    buffer.write(part.state->length(), k_RGE, v_RGE, part.rows);
    for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      nn::KeyRange& range = pass.keys[static_cast<size_t>(row)].ranges[0];
      range.buffer = &buffer;
      range.begin = window_ > 0 ? std::max<int64_t>(0, range.end - window_) : 0;
    }
  }
}

void AttentionLayer::add_to(const at::Tensor& x_RD, Pass& pass, at::Tensor& h_RD) const {
  const int64_t rows = pass.num_rows, qk = heads_ + kv_heads_;
  profile::Range part("target", "q, k and v", [&] { return nn::work_of(qkv_, rows); });
  const at::Tensor all_RN = qkv_.forward(x_RD);
  part.next("rotation and norms of q and k");
  const int64_t width = (qk + kv_heads_) * head_dim_;
  const at::Tensor qkv_RHE = all_RN.narrow(1, 0, width).view({rows, qk + kv_heads_, head_dim_});
  at::Tensor q_RHE = qkv_RHE.narrow(1, 0, heads_), k_RGE = qkv_RHE.narrow(1, heads_, kv_heads_);
  if (q_norm_E_.defined()) {
    q_RHE = rope_.apply(nn::rms_norm(q_RHE, q_norm_E_, eps_), pass.pos_R);
    k_RGE = rope_.apply(nn::rms_norm(k_RGE, k_norm_E_, eps_), pass.pos_R);
  } else {
    const at::Tensor qk_RHE = rope_.apply(qkv_RHE.narrow(1, 0, qk), pass.pos_R);
    q_RHE = qk_RHE.narrow(1, 0, heads_), k_RGE = qk_RHE.narrow(1, heads_, kv_heads_);
  }
  part.next("cache");
  write_cache(pass, k_RGE, qkv_RHE.narrow(1, qk, kv_heads_));
  part.next("attention", [&] {
    const int64_t width = qkv_.compute() == nn::Compute::kBF16 ? 2 : 4;
    return attention_work(pass, heads_ * head_dim_, 2 * kv_heads_ * head_dim_ * width);
  });
  at::Tensor out_RN = nn::attend(q_RHE, pass.keys);
  if (gated_) out_RN = nn::logistic_gate(out_RN, all_RN.narrow(1, width, heads_ * head_dim_));
  part.next("o", [&] { return nn::work_of(o_, rows); });
  o_.add_to(out_RN, h_RD);
}

std::unique_ptr<MixerLayer> make_mixer(const LayerReader& reader, const nn::Rope& rope) {
  if (reader.config().mixer(reader.layer()) == Mixer::kDelta) {
    return std::make_unique<DeltaLayer>(reader);
  }
  return std::make_unique<AttentionLayer>(reader, rope);
}

}  // namespace dflash::target
