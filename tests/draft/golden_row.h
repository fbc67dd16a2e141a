// A packed row as the golden files of make_draft.py and make_formats.py hold it: ids, doc,
// loss_mask and anchors, with the blocks of a rule over it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "block/blocks.h"

namespace dflash::draft {

inline std::vector<int64_t> to_vector(const at::Tensor& x) {
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

struct GoldenRow {
  GoldenRow(const std::map<std::string, at::Tensor>& in, const block::BlockRule& rule)
      : ids(to_vector(in.at("ids"))), doc(to_vector(in.at("doc"))) {
    for (const int64_t m : to_vector(in.at("loss_mask"))) mask.push_back(static_cast<uint8_t>(m));
    for (size_t t = 0; t < doc.size(); ++t) {
      pos.push_back(t > 0 && doc[t] == doc[t - 1] ? pos.back() + 1 : 0);
    }
    blocks = block::training_blocks(rule, {ids, mask, doc}, to_vector(in.at("anchors")));
  }

  at::Tensor positions() const { return at::tensor(pos, at::kLong); }
  /// The blocks' rows of a table, [N, K, D].
  at::Tensor embed(const at::Tensor& table_VD) const {
    return table_VD.index_select(0, at::tensor(blocks.ids_NK, at::kLong))
        .view({blocks.num_blocks, blocks.block_size, -1});
  }

  std::vector<int64_t> ids, doc, pos;
  std::vector<uint8_t> mask;
  block::Blocks blocks;
};

}  // namespace dflash::draft
