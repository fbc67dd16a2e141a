// The three kinds of `inspect`: a path, text, a block.
#pragma once

namespace dflash::cli {

int inspect_text(int argc, char** argv);
int inspect_block(int argc, char** argv);
int inspect_path(int argc, char** argv);

}  // namespace dflash::cli
