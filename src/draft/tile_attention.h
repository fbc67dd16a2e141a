// block_attention (its slow twin) with bf16 operands on AMX tiles: the same function of the same
// inputs, one softmax over the context and the own block, f32 sums. Work and memory are linear in
// anchors and in context here too; scores of a few blocks and 128 keys exist at a time.
#pragma once

#include "draft/block_attention.h"
#include "nn/compute.h"

namespace dflash::draft {

/// Whether the CPU has tiles, `compute` is bf16 and heads fit them.
bool tile_attention_supported(nn::Compute compute, int64_t head_dim);

/// As block_attention; f32 inputs. Rows that a query does not see must be finite: their weight is
/// 0, their place in a tile is not.
at::Tensor tile_attention(const BlockAttentionInputs& inputs,
                          const std::shared_ptr<const AttentionPlan>& plan);

}  // namespace dflash::draft
