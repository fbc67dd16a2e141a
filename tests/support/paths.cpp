#include "support/paths.h"

namespace dflash::tree {

std::filesystem::path root() {
  return DFLASH_SOURCE_DIR;
}

std::filesystem::path program() {
  return DFLASH_PROGRAM;
}

}  // namespace dflash::tree
