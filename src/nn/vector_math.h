// ATen's exp and log take MKL's vector functions, which pick their code at their first call. When
// that call comes from two threads at once, one of them may take other code for it: last bits
// differ (seen in about one process of thirty beside other work, LibTorch 2.13.0), and with them
// every later step of a training run.
#pragma once

namespace dflash::nn {

/// Makes that first call on one thread. Before the first exp or log of rows whose bits must be the
/// same in every process; any call but the first costs nothing.
void settle_vector_math();

}  // namespace dflash::nn
