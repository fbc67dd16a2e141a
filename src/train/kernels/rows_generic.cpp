#include "train/kernels/rows_impl.h"

namespace dflash::train::kernels {

const RowKernels& row_kernels_generic() {
  return kTable;
}

}  // namespace dflash::train::kernels
