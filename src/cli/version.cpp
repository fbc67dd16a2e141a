// Compiled by itself: the only file that knows DFLASH_VERSION, the version of the CMake project.
#include "cli/version.h"

#include <torch/headeronly/version.h>

namespace dflash::cli {

std::string version_text() {
  return "dflash-cpp " DFLASH_VERSION ", LibTorch " TORCH_VERSION;
}

}  // namespace dflash::cli
