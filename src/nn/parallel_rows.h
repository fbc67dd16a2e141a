// Splits the rows of a cheap per-row kernel over threads when there is enough work to share.
#pragma once

#include <omp.h>

#include <cstdint>

#include "nn/kernels/select.h"

namespace dflash::nn {

/// work(begin, end) over [0, rows); `values` is what one row reads and writes.
template <typename Work>
void parallel_rows(int64_t rows, int64_t values, const Work& work) {
  constexpr int64_t kWorthAThread = 1 << 14;
  if (rows * values < 2 * kWorthAThread || omp_in_parallel()) {
    if (rows > 0) work(int64_t{0}, rows);
    return;
  }
#pragma omp parallel
  {
    const auto mine = kernels::share(rows, 1, omp_get_thread_num(), omp_get_num_threads());
    if (mine.begin < mine.end) work(mine.begin, mine.end);
  }
}

}  // namespace dflash::nn
