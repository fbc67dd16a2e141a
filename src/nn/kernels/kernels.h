// The table of kernels of one instruction set: raw pointers and extents, one thread, no Torch.
// Splitting over threads is the callers' work (packed.cpp, attention.cpp, rows.cpp).
//
// Every product is c[r, n] = sum_k a[r, k] b[k, n] with one fixed order over k for each element,
// whatever the number of rows or columns of the call: that is what makes rows invariant.
//
// The right operand comes in tiles of 16 columns:
//   f32   step = one k:  16 floats                                  b + step * step_stride + ...
//   bf16  step = 32 k:   16 pairs of k x 16 columns x 2, 1 KiB      ... tile * tile_stride
// so a packed weight, the keys (columns = keys, k = head dimension) and the values (columns = head
// dimension, k = keys) of a cache are the same thing with other strides.
#pragma once

#include <cstdint>

namespace dflash::nn::kernels {

// Internal linkage, as everything that a kernel file could emit with its own instructions.
constexpr int64_t kTile = 16;       // columns of a tile, rows of a packed block of rows
constexpr int64_t kStepK = 32;      // k of a bf16 step
constexpr int64_t kTileBf16 = 512;  // elements of a bf16 tile: kStepK * kTile
constexpr int64_t kFewRows = 32;    // product_blocks: rows up to which they are the right operand
constexpr int64_t kPanel = 4;       // tiles that lie side by side in a packed weight

static inline constexpr int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}
static inline constexpr int64_t steps_of(int64_t k) {
  return (k + kStepK - 1) / kStepK;
}

struct Product {
  const void* a = nullptr;  // f32: rows of floats; bf16: what pack_rows wrote
  int64_t a_stride = 0;     // f32: floats between rows; bf16: unused
  const void* b = nullptr;  // first tile
  int64_t tile_stride = 0;  // elements between tiles
  int64_t step_stride = 0;  // elements between steps
  int64_t steps = 0;        // f32: k; bf16: steps_of(k)
  int64_t rows = 0;
  int64_t columns = 0;  // the last tile may be ragged: columns past it are not stored
  float* c = nullptr;
  int64_t c_stride = 0;
  const float* bias = nullptr;  // [columns] or null
  bool add = false;             // c += instead of c =
  void* work = nullptr;         // product_blocks: block_work_bytes(steps)
};

/// A weight that keeps the blocks of its file: value = scale * code + least, one pair of scale and
/// least for 32 k of a column. A record holds one step of one strip of 16 columns:
///   codes   for tiles, whose rows are columns of the weight:
///             4 bits: 4 groups of 4 columns, 32 words each, nibble i of word k = column i at that
///             k 8 bits: 16 columns, 32 signed bytes each
///           in lanes, for vectors of columns:
///             4 bits: 4 lines of 16 words, nibble i of word c of line j = column c at k 8 j + i
///             8 bits: 32 k, 16 signed bytes each
///   scales  16 halves or floats, then (with_least) as many leasts
struct BlockFormat {
  int bits = 0;             // 4 or 8; 0: no blocks
  bool with_least = false;  // always with 4 bits
  bool half = false;        // scales and leasts are f16
  bool lanes = false;       // codes in lanes: product_f32_blocks
  int64_t code_bytes() const { return bits * kTile * kStepK / 8; }
  int64_t record_bytes() const {
    return code_bytes() + kTile * (half ? 2 : 4) * (with_least ? 2 : 1);
  }
};

static inline constexpr int64_t block_work_bytes(int64_t steps) {
  return 2 * steps * kTileBf16 * 2;  // two strips, widened
}

struct Best {
  float value;
  int64_t index;
};

/// Rows of floats with a dense last dimension; strides in floats.
struct NormRows {
  const float* x = nullptr;
  const float* weight = nullptr;
  int64_t rows = 0, width = 0, x_stride = 0;
  double eps = 0;
  float* y = nullptr;        // [rows, width], dense
  float* inverse = nullptr;  // [rows] 1 / rms for the backward pass, or null
};

struct NormBackwardRows {
  const float *x = nullptr, *weight = nullptr, *inverse = nullptr, *dy = nullptr;
  int64_t rows = 0, width = 0;
  float* dx = nullptr;  // [rows, width]
  float* dw = nullptr;  // [width], added to; or null
};

struct RopeRow {
  const float* x = nullptr;    // [heads, 2 * half], heads x_stride floats apart
  const float* cos = nullptr;  // [half]
  const float* sin = nullptr;
  int64_t heads = 0, half = 0, x_stride = 0;
  float sign = 1;  // -1 rotates back
  float* y = nullptr;
  int64_t y_stride = 0;  // floats between heads
};

/// One channel-wise causal convolution over rows of a sequence, then silu.
struct ConvRows {
  const float* before = nullptr;  // [taps - 1, channels]: the rows that came before x's first
  const float* x = nullptr;       // [rows, channels]
  const float* weight = nullptr;  // [taps, channels], the last tap is the row itself
  int64_t rows = 0, channels = 0, taps = 0;
  int64_t x_stride = 0;  // floats between rows of x
  float* y = nullptr;    // [rows, channels]
};

/// The gated delta rule of one value head over rows of a sequence (MODELS.md 3.5):
/// S <- decay S; S <- S + k (beta (v - S^T k))^T; y = S^T q. Strides in floats between rows.
struct DeltaRows {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const float *decay = nullptr, *beta = nullptr;
  int64_t qk_stride = 0, v_stride = 0, gate_stride = 0, y_stride = 0;
  int64_t rows = 0, key_dim = 0, value_dim = 0;
  float* state = nullptr;  // [key_dim, value_dim], advanced over all rows
  float* y = nullptr;      // null: the state only
};

struct Kernels {
  const char* name;
  /// Around a thread's use of product_bf16 (sets up and frees tile registers).
  void (*enter)();
  void (*leave)();
  /// Bytes of one element of packed rows; a block of 16 rows has steps_of(k) * 512 elements.
  int64_t packed_row_bytes;
  /// f32 rows -> the left operand of product_bf16, values rounded to bf16, rows and k padded by 0.
  void (*pack_rows)(const float* x, int64_t x_stride, int64_t rows, int64_t k, void* a);
  void (*product_bf16)(const Product& product);
  /// The same over blocks that are widened to bf16 on the way: `b` the first strip's records,
  /// strides in bytes, `a` what pack_columns wrote (pack_rows for more than kFewRows rows); the
  /// bits of product_bf16 over the widened weights. Null where no kernel has it: such weights are
  /// widened when they are loaded.
  void (*product_blocks)(const Product& product, const BlockFormat& format) = nullptr;
  /// f32 rows -> the right operand of product_blocks, as pack_rows.
  void (*pack_columns)(const float* x, int64_t x_stride, int64_t rows, int64_t k,
                       void* a) = nullptr;
  void (*product_f32)(const Product& product);
  /// f32 rows times weights that stay bf16, or in blocks (format.lanes; `b` and strides as for
  /// product_blocks), and are widened to f32 on the way, which loses nothing: the bits of
  /// product_f32 over their f32 copy. k is whole steps.
  void (*product_f32_bf16)(const Product& product);
  void (*product_f32_blocks)(const Product& product, const BlockFormat& format);

  /// In place: exp(score - peak) at [begin, end), 0 elsewhere in [0, width); width % 16 == 0.
  void (*softmax_row)(float* scores, int64_t width, int64_t begin, int64_t end, float* peak,
                      float* sum);
  /// Softmax parts as [peak [count], sum [count], values [count, width]], width % 16 == 0: adds
  /// the later part `from` to `to`. A row with sum 0 has seen no key.
  void (*merge_rows)(const float* from, float* to, int64_t count, int64_t width);
  /// Lowest index of the largest of x[0, n), as first + index, when it beats `best`.
  void (*argmax_row)(const float* x, int64_t n, int64_t first, Best* best);
  void (*norm)(const NormRows& rows);
  void (*norm_backward)(const NormBackwardRows& rows);
  /// gate_up [rows, 2 * width] -> y [rows, width] = silu(gate) * up.
  void (*swiglu)(const float* gate_up, int64_t rows, int64_t width, float* y);
  void (*swiglu_backward)(const float* gate_up, const float* dy, int64_t rows, int64_t width,
                          float* dgate_up);
  void (*rope)(const RopeRow& row);
  /// y = x * logistic(gate), n values.
  void (*gate_row)(const float* x, const float* gate, int64_t n, float* y);
  void (*conv_silu)(const ConvRows& rows);
  void (*delta_rule)(const DeltaRows& rows);
};

extern const Kernels kScalarKernels, kAvx2Kernels, kAvx512Kernels, kAvx512Bf16Kernels, kAmxKernels;

}  // namespace dflash::nn::kernels
