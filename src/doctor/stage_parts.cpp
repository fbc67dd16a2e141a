#include "doctor/stage_parts.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "nn/head.h"

namespace dflash::doctor {

at::Tensor as_slots(const std::vector<int64_t>& values, int64_t block_size) {
  return at::tensor(values, at::kLong).view({-1, block_size});
}

void add_block_stages(const block::BlockRule& rule, const block::Blocks& blocks, Stages& stages) {
  const int64_t size = blocks.block_size;
  stages.add("block.ids", as_slots(blocks.ids_NK, size));
  stages.add("block.positions", as_slots(blocks.pos_NK, size));
  for (size_t l = 0; l < rule.layers.size(); ++l) {
    std::vector<int64_t> seen;
    for (int64_t n = 0; n < blocks.num_blocks; ++n) {
      for (int64_t k = 0; k < size; ++k) {
        const int64_t begin = blocks.doc_begin_N[n];
        const auto span = block::context_span(rule.layers[l], begin, blocks.anchor_N[n], k);
        const auto slots = block::slot_span(rule.layers[l], k, size);
        seen.insert(seen.end(), {span.begin - begin, span.end - begin, slots.begin, slots.end});
      }
    }
    stages.add(fmt::format("visible.{}", l), at::tensor(seen, at::kLong).view({-1, size, 4}));
  }
}

void add_logits(const block::BlockRule& rule, const at::Tensor& logits_NKV, const at::Tensor& id_V,
                Stages& stages) {
  stages.add("logits", logits_NKV);
  const int64_t first = 1 - rule.slot_shift;
  const at::Tensor proposing = logits_NKV.narrow(1, first, rule.block_size - first);
  at::Tensor ids = nn::argmax_rows(proposing.reshape({-1, logits_NKV.size(2)}));
  if (id_V.defined()) ids = id_V.index_select(0, ids);
  stages.add("proposals", ids.view({logits_NKV.size(0), -1}));
}

}  // namespace dflash::doctor
