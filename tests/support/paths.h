// Where the tree and the program are. In one small source file, so that a compiler cache serves the
// tests of another clone too.
#pragma once

#include <filesystem>

namespace dflash::tree {

std::filesystem::path root();
std::filesystem::path program();

}  // namespace dflash::tree
