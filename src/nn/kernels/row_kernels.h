// Row kernels of any vector width: softmax, argmax, norm, swiglu, rope. Included once by each
// kernel file; anonymous for the reason given in simd.h.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace {

using namespace dflash::nn::kernels;

constexpr float kMinusInfinity = -__builtin_inff();

/// One float vector or the ragged end of a row.
inline F load_some(const float* from, int64_t left) {
  return left >= kLanes ? load(from) : load_part(from, left);
}
inline void store_some(float* to, F v, int64_t left) {
  left >= kLanes ? store(to, v) : store_part(to, v, left);
}

inline I lane_numbers() {
  I lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  return lanes;
}

/// Vectors of a row that are seen in part: the lanes of [begin, end) at `i`.
inline I visible_lanes(int64_t i, int64_t begin, int64_t end) {
  const I at = lane_numbers() + static_cast<int32_t>(i);
  return (at >= static_cast<int32_t>(begin)) & (at < static_cast<int32_t>(end));
}

void softmax_row(float* scores, int64_t width, int64_t begin, int64_t end, float* peak,
                 float* sum) {
  const int64_t first = begin / kLanes * kLanes;  // vectors before it and from `end` on are unseen
  const auto whole = [&](int64_t i) { return i >= begin && i + kLanes <= end; };
  F best = all(kMinusInfinity);
  for (int64_t i = first; i < end && i < width; i += kLanes) {
    const F x = load(scores + i);
    best = larger(whole(i) ? x : visible_lanes(i, begin, end) ? x : all(kMinusInfinity), best);
  }
  const float top = max_lanes(best);
  F total = {};
  for (int64_t i = 0; i < width; i += kLanes) {
    if (i < first || i >= end) {
      store(scores + i, F{});
      continue;
    }
    F weight = exponential(load(scores + i) - top);
    if (!whole(i)) weight = visible_lanes(i, begin, end) ? weight : F{};
    store(scores + i, weight);
    total += weight;
  }
  *peak = top;
  *sum = sum_lanes(total);
}

void merge_rows(const float* from, float* to, int64_t count, int64_t width) {
  const float *from_peak = from, *from_sum = from + count, *add = from + 2 * count;
  float *peak = to, *sum = to + count, *values = to + 2 * count;
  for (int64_t first = 0; first < count; first += kLanes) {
    const int64_t left = count - first;
    const F old_peak = load_some(peak + first, left), new_peak = load_some(from_peak + first, left);
    const F old_sum = load_some(sum + first, left), new_sum = load_some(from_sum + first, left);
    // A side without keys has sum 0 and must not touch the other, not even by rounding.
    const F top = new_sum == 0 ? old_peak : old_sum == 0 ? new_peak : larger(new_peak, old_peak);
    const F keep = old_sum == 0 ? F{} : exponential(old_peak - top);
    const F take = new_sum == 0 ? F{} : exponential(new_peak - top);
    store_some(peak + first, top, left);
    store_some(sum + first, fma(old_sum, keep, new_sum * take), left);
    for (int64_t m = 0; m < kLanes && m < left; ++m) {
      const float* from_row = add + (first + m) * width;
      float* row = values + (first + m) * width;
      if (new_sum[m] == 0) continue;
      for (int64_t e = 0; e < width; e += kLanes) {
        const F old = old_sum[m] == 0 ? F{} : load(row + e) * keep[m];
        store(row + e, fma(load(from_row + e), all(take[m]), old));
      }
    }
  }
}

void argmax_row(const float* x, int64_t n, int64_t first, Best* best) {
  F top = all(kMinusInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) top = larger(load(x + i), top);
  float value = max_lanes(top);
  for (; i < n; ++i) value = x[i] > value ? x[i] : value;
  if (!(value > best->value)) return;
  for (i = 0; x[i] != value; ++i) {
  }
  *best = {value, first + i};
}

void norm(const NormRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float* x = rows.x + r * rows.x_stride;
    float* y = rows.y + r * rows.width;
    F even = {}, odd = {};
    int64_t i = 0;
    for (; i + 2 * kLanes <= rows.width; i += 2 * kLanes) {
      const F a = load(x + i), b = load(x + i + kLanes);
      even = fma(a, a, even), odd = fma(b, b, odd);
    }
    for (; i < rows.width; i += kLanes) {
      const F a = load_some(x + i, rows.width - i);
      even = fma(a, a, even);
    }
    const float mean = sum_lanes(even + odd) / static_cast<float>(rows.width);
    const float inverse = 1.0F / __builtin_sqrtf(mean + static_cast<float>(rows.eps));
    if (rows.inverse) rows.inverse[r] = inverse;
    for (i = 0; i < rows.width; i += kLanes) {
      const int64_t left = rows.width - i;
      store_some(y + i, load_some(x + i, left) * inverse * load_some(rows.weight + i, left), left);
    }
  }
}

void norm_backward(const NormBackwardRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float* x = rows.x + r * rows.width;
    const float* dy = rows.dy + r * rows.width;
    const float inverse = rows.inverse[r];
    F dot = {};
    for (int64_t i = 0; i < rows.width; i += kLanes) {
      const int64_t left = rows.width - i;
      dot = fma(load_some(x + i, left) * load_some(dy + i, left), load_some(rows.weight + i, left),
                dot);
    }
    // dx = inverse * (w dy - x inverse^2 mean(w dy x))
    const float pull = sum_lanes(dot) / static_cast<float>(rows.width) * inverse * inverse;
    for (int64_t i = 0; i < rows.width; i += kLanes) {
      const int64_t left = rows.width - i;
      const F value = load_some(x + i, left), slope = load_some(dy + i, left);
      const F straight = slope * load_some(rows.weight + i, left);
      store_some(rows.dx + r * rows.width + i, (straight - value * pull) * inverse, left);
      if (rows.dw) {
        store_some(rows.dw + i, fma(slope, value * inverse, load_some(rows.dw + i, left)), left);
      }
    }
  }
}

inline F logistic(F x) {
  return all(1.0F) / (all(1.0F) + exponential(-x));
}

void swiglu(const float* gate_up, int64_t rows, int64_t width, float* y) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * width, y += width) {
    for (int64_t i = 0; i < width; i += kLanes) {
      const int64_t left = width - i;
      const F gate = load_some(gate_up + i, left), up = load_some(gate_up + width + i, left);
      store_some(y + i, gate * logistic(gate) * up, left);
    }
  }
}

void swiglu_backward(const float* gate_up, const float* dy, int64_t rows, int64_t width,
                     float* dgate_up) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * width, dgate_up += 2 * width, dy += width) {
    for (int64_t i = 0; i < width; i += kLanes) {
      const int64_t left = width - i;
      const F gate = load_some(gate_up + i, left), up = load_some(gate_up + width + i, left);
      const F slope = load_some(dy + i, left), s = logistic(gate);
      store_some(dgate_up + i, slope * up * s * (all(1.0F) + gate * (all(1.0F) - s)), left);
      store_some(dgate_up + width + i, slope * gate * s, left);
    }
  }
}

void rope(const RopeRow& row) {
  for (int64_t h = 0; h < row.heads; ++h) {
    const float* x = row.x + h * row.x_stride;
    float* y = row.y + h * row.y_stride;
    for (int64_t i = 0; i < row.half; i += kLanes) {
      const int64_t left = row.half - i;
      const F cosine = load_some(row.cos + i, left), sine = load_some(row.sin + i, left) * row.sign;
      const F a = load_some(x + i, left), b = load_some(x + row.half + i, left);
      store_some(y + i, fma(a, cosine, -(b * sine)), left);
      store_some(y + row.half + i, fma(b, cosine, a * sine), left);
    }
  }
}

}  // namespace
