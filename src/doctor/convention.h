// How a drafter is fed and read: its spec (rule, rotary embedding, slot shift) and what of the
// target goes into fc. The declared convention is the drafter's own; a deviation is another value
// of this type, never another implementation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/engine.h"
#include "draft/drafter.h"
#include "target/target.h"

namespace dflash::doctor {

/// One tap of fc's input.
struct TapUse {
  int64_t layer = 0;          // residual after this 0-based block; -1: embedding
  bool zeroed = false;        // fc reads zeros instead
  bool final_normed = false;  // the target's final norm was applied to it
};

struct Convention {
  draft::DraftSpec spec;  // spec.taps stays as declared; `taps` says what is really fed
  std::vector<TapUse> taps;
  bool bf16_features = false;  // features rounded to bf16 on their way
};

Convention declared_convention(const draft::DraftSpec& spec);

/// The drafter's weights and own tables read under another convention; f32 tensors are shared, not
/// copied. Not packed: for the training forward.
std::shared_ptr<draft::Drafter> drafter_under(const Convention& convention,
                                              const draft::Drafter& drafter);
/// The same, packed for decoding.
std::shared_ptr<draft::Drafter> packed_drafter_under(const Convention& convention,
                                                     const draft::Drafter& drafter);

/// Target layers that any of the conventions reads, ascending.
std::vector<int64_t> layers_of(const std::vector<Convention>& conventions);

/// bank_TF: residuals of `layers` side by side, f32 -> what fc is fed, f32 [T, taps * D].
at::Tensor features_of(const Convention& convention, const target::Target& target,
                       const std::vector<int64_t>& layers, const at::Tensor& bank_TF);

/// Decodes under a convention. Error when the convention cannot be served: the anchor's own feature
/// is not known yet when its block is drafted.
std::unique_ptr<decode::Proposer> proposer_under(const Convention& convention,
                                                 const draft::Drafter& drafter,
                                                 const target::Target& target);

/// False when the block would read the anchor's own feature.
bool can_be_served(const Convention& convention);

}  // namespace dflash::doctor
