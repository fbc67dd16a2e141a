// What --version says.
#pragma once

#include <string>

namespace dflash::cli {

/// "dflash-cpp 0.1.0, LibTorch 2.13.0".
std::string version_text();

}  // namespace dflash::cli
