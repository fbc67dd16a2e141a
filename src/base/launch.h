// Starts ranks on this machine: this program anew, once for each, with the environment that tells
// it which rank it is.
#pragma once

#include <string>
#include <vector>

namespace dflash {

struct LaunchOptions {
  int count = 2;
  std::vector<std::string> arguments;  // of the program, without its name
  int threads = 1;                     // of one rank, unless its arguments say otherwise
};

/// Runs until all have ended and returns the worst exit code (128 + n after signal n). SIGINT and
/// SIGTERM go on to every rank. When one fails, the others get time to see it themselves, then are
/// ended; when this process is killed, they get SIGTERM.
int launch_ranks(const LaunchOptions& options);

}  // namespace dflash
