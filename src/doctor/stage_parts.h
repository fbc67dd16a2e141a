// What both paths of stages.h write down in the same way. Internal to doctor.
#pragma once

#include <string>
#include <vector>

#include "block/blocks.h"
#include "doctor/stages.h"

namespace dflash::doctor {

/// block.ids, block.positions and visible.L of all blocks.
void add_block_stages(const block::BlockRule& rule, const block::Blocks& blocks, Stages& stages);

/// logits and proposals from hidden_NKD; `logits_RV` over draft ids, id_V maps them (may be
/// undefined).
void add_logits(const block::BlockRule& rule, const at::Tensor& logits_NKV, const at::Tensor& id_V,
                Stages& stages);

/// int64 values as [N, K].
at::Tensor as_slots(const std::vector<int64_t>& values, int64_t block_size);

}  // namespace dflash::doctor
