#include "train/memory.h"

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace dflash::train {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kMapFrom = 1 << 30;   // bytes; only such blocks are mapped on their own
  constexpr int kTrimFrom = 1 << 30;  // bytes free at the heap's end before any go back
  mallopt(M_MMAP_THRESHOLD, kMapFrom);
  mallopt(M_TRIM_THRESHOLD, kTrimFrom);
#endif
}

}  // namespace dflash::train
