// inspect: looks into a path (model, drafter, dataset, features, run), a text, or a block.
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/suggest.h"
#include "cli/inspect.h"
#include "cli/verbs.h"

namespace dflash::cli {
namespace {

constexpr const char* kUsage =
    "usage: dflash-cpp inspect PATH            a target, drafter, dataset, features or run folder\n"
    "       dflash-cpp inspect text TEXT       its tokens and ids\n"
    "       dflash-cpp inspect block OPTIONS   ids, positions, visibility, labels of blocks\n";

}  // namespace

int run_inspect(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    fmt::print(argc < 2 ? stderr : stdout, "{}", kUsage);
    return argc < 2 ? 2 : 0;
  }
  if (std::strcmp(argv[1], "text") == 0) return inspect_text(argc - 1, argv + 1);
  if (std::strcmp(argv[1], "block") == 0) return inspect_block(argc - 1, argv + 1);
  if (argv[1][0] != '-' && !std::filesystem::exists(argv[1])) {
    fail("no such file or folder: {}{}", argv[1], did_you_mean(argv[1], {"text", "block"}));
  }
  return inspect_path(argc, argv);
}

}  // namespace dflash::cli
