// The three kinds of `inspect`: a path, text, a block.
#pragma once

#include <filesystem>

#include "base/json.h"

namespace dflash::cli {

int inspect_text(int argc, char** argv);
int inspect_block(int argc, char** argv);
int inspect_path(int argc, char** argv);

/// What `prepare` would see in the lines of a file, counted.
Json describe_records(const std::filesystem::path& path);

}  // namespace dflash::cli
