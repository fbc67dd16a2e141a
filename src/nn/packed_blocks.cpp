// Packing of weights that keep the blocks of their file (kernels/kernels.h: BlockFormat).
#include <ATen/ops/equal.h>

#include "base/error.h"
#include "nn/kernels/memory.h"
#include "nn/kernels/select.h"
#include "nn/packed.h"

namespace dflash::nn {

using namespace kernels;

namespace {

bool fits_half(const at::Tensor& values) {
  return !values.defined() || at::equal(values.to(at::kHalf).to(at::kFloat), values);
}

/// One record; columns past the weight's end stay zero.
class RecordWriter {
 public:
  RecordWriter(const BlockWeight& weight, const BlockFormat& format)
      : format_(format),
        codes_(weight.codes_OI.contiguous()),
        scale_(weight.scale_OB.contiguous()),
        least_(weight.least_OB.defined() ? weight.least_OB.contiguous() : at::Tensor()),
        out_(codes_.size(0)),
        in_(codes_.size(1)) {}

  void write(int64_t tile, int64_t step, uint8_t* record) const {
    for (int64_t c = 0; c < kTile && tile * kTile + c < out_; ++c) {
      const int64_t row = tile * kTile + c;
      const int8_t* codes = codes_.const_data_ptr<int8_t>() + row * in_ + step * kStepK;
      if (format_.lanes) {
        write_lane(codes, c, record);
      } else {
        format_.bits == 4 ? write4(codes, c, record) : write8(codes, c, record);
      }
      const int64_t block = row * (in_ / kStepK) + step;
      put_scale(scale_.const_data_ptr<float>()[block], c, record + format_.code_bytes());
      if (!format_.with_least) continue;
      put_scale(least_.const_data_ptr<float>()[block], kTile + c, record + format_.code_bytes());
    }
  }

 private:
  static void write4(const int8_t* codes, int64_t column, uint8_t* record) {
    const int64_t shift = column % 4 * 4;
    for (int64_t k = 0; k < kStepK; ++k) {
      uint8_t* to = record + column / 4 * 64 + k * 2 + shift / 8;
      *to = static_cast<uint8_t>(*to | codes[k] << shift % 8);
    }
  }
  static void write8(const int8_t* codes, int64_t column, uint8_t* record) {
    std::memcpy(record + column * kStepK, codes, kStepK);
  }
  void write_lane(const int8_t* codes, int64_t column, uint8_t* record) const {
    for (int64_t k = 0; k < kStepK; ++k) {
      const auto code = static_cast<uint8_t>(codes[k]);
      if (format_.bits == 8) {
        record[k * kTile + column] = code;
      } else {
        uint8_t* to = record + k / 8 * 64 + column * 4 + k % 8 / 2;
        *to = static_cast<uint8_t>(*to | code << k % 2 * 4);
      }
    }
  }
  void put_scale(float value, int64_t index, uint8_t* to) const {
    const c10::Half half(value);
    if (format_.half) {
      std::memcpy(to + index * 2, &half.x, 2);
    } else {
      std::memcpy(to + index * 4, &value, 4);
    }
  }

  BlockFormat format_;
  at::Tensor codes_, scale_, least_;
  int64_t out_, in_;
};

}  // namespace

bool PackedWeight::keeps_blocks(Compute compute) {
  return compute == Compute::kF32 || current().product_blocks != nullptr;
}

PackedWeight::PackedWeight(const BlockWeight& weight, Compute compute)
    : in_(weight.codes_OI.size(1)), out_(weight.codes_OI.size(0)), compute_(compute) {
  DF_ASSERT(keeps_blocks(compute) && in_ % kBlockWidth == 0 && kBlockWidth == kStepK, "in={}", in_);
  blocks_ = {.bits = static_cast<int>(weight.bits),
             .with_least = weight.least_OB.defined(),
             .half = fits_half(weight.scale_OB) && fits_half(weight.least_OB),
             .lanes = compute == Compute::kF32};
  DF_ASSERT(blocks_.bits == 8 || (blocks_.bits == 4 && blocks_.with_least), "bits={}", weight.bits);
  const int64_t steps = steps_of(in_), tiles = num_tiles();
  bytes_ = tiles * steps * blocks_.record_bytes();
  data_ = allocate_weights(static_cast<size_t>(bytes_));
  std::memset(data_.get(), 0, bytes_);
  const RecordWriter writer(weight, blocks_);
#pragma omp parallel for
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const Product place = product(tile, tile + 1);
    auto* record = static_cast<uint8_t*>(const_cast<void*>(place.b));
    for (int64_t s = 0; s < steps; ++s) writer.write(tile, s, record + s * place.step_stride);
  }
}

}  // namespace dflash::nn
