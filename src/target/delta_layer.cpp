#include <ATen/ops/exp.h>

#include "nn/delta.h"
#include "nn/norm.h"
#include "nn/profile_work.h"
#include "target/mixers.h"

namespace dflash::target {

DeltaLayer::DeltaLayer(const LayerReader& reader)
    : layer_(static_cast<size_t>(reader.layer())),
      eps_(reader.config().rms_norm_eps),
      shape_(reader.config().delta) {
  const std::string stem = "linear_attn.";
  in_ = reader.fused(
      {stem + "in_proj_qkv", stem + "in_proj_z", stem + "in_proj_b", stem + "in_proj_a"});
  out_ = reader.fused({stem + "out_proj"});
  conv_TC_ = reader.f32(stem + "conv1d.weight")
                 .reshape({shape_.conv_width(), shape_.conv_taps})
                 .t()
                 .contiguous();
  rate_H_ = at::exp(reader.f32(stem + "A_log"));
  dt_bias_H_ = reader.f32(stem + "dt_bias");
  norm_E_ = reader.f32(stem + "norm.weight");
}

at::Tensor DeltaLayer::run(Pass& pass, const at::Tensor& x_RC, const at::Tensor& a_RH,
                           const at::Tensor& b_RH) const {
  std::vector<nn::ConvPart> conv;
  for (const Pass::Part& part : pass.parts) {
    conv.push_back(part.state->memories[layer_].conv_part(part.rows));
  }
  const at::Tensor conv_RC = nn::causal_conv_silu(x_RC, conv_TC_, conv);
  const nn::DeltaInputs inputs = nn::delta_inputs(shape_, conv_RC, a_RH, b_RH, rate_H_, dt_bias_H_);
  std::vector<nn::DeltaPart> parts;
  for (const Pass::Part& part : pass.parts) {
    parts.push_back(part.state->memories[layer_].begin({part.rows, x_RC, inputs, part.undo}));
  }
  return nn::delta_rule(inputs, parts);
}

void DeltaLayer::add_to(const at::Tensor& x_RD, Pass& pass, at::Tensor& h_RD) const {
  const int64_t rows = pass.num_rows, heads = shape_.value_heads;
  const int64_t conv = shape_.conv_width(), width = shape_.value_width();
  profile::Range part("target", "delta, in", [&] { return nn::work_of(in_, rows); });
  const at::Tensor all_RN = in_.forward(x_RD);
  part.next("delta rule");
  const at::Tensor z_RN = all_RN.narrow(1, conv, width);
  const at::Tensor b_RH = all_RN.narrow(1, conv + width, heads);
  const at::Tensor a_RH = all_RN.narrow(1, conv + width + heads, heads);
  const at::Tensor y_RHE = run(pass, all_RN.narrow(1, 0, conv), a_RH, b_RH);
  const at::Tensor normed_RN = nn::rms_norm(y_RHE, norm_E_, eps_).view({rows, width});
  part.next("delta, out", [&] { return nn::work_of(out_, rows); });
  out_.add_to(nn::swiglu(at::cat({z_RN, normed_RN}, 1)), h_RD);
}

}  // namespace dflash::target
