#include "nn/vector_math.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <mutex>

namespace dflash::nn {

void settle_vector_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      at::ones({16}, type).exp_().log_();  // too few for a second thread
    }
  });
}

}  // namespace dflash::nn
