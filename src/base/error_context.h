// The file of an error whose thrower does not know it.
#pragma once

#include <string>

#include "base/error.h"

namespace dflash {

/// What `work` returns. An Error of it that does not name `where` (the file or folder being read)
/// is thrown again with `where` in front.
template <typename Work>
auto naming(const std::string& where, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(where) != std::string::npos) throw;
    fail("{}: {}", where, what);
  }
}

}  // namespace dflash
