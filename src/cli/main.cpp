#include <unistd.h>
#include <cstdlib>

#include "cli/verbs.h"

namespace {

/// Threads of libgomp spin for some twenty milliseconds when they wait for each other, and on a
/// machine that is shared they take the time of the thread they wait for: decoding beside a
/// compiler became ten times slower. A millisecond bridges every gap between two products. libgomp
/// reads the setting before main, so the program begins once more with it. A setting of the user's
/// own stands.
void spin_briefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "20000", /*overwrite=*/0);
  execv("/proc/self/exe", argv);  // returns only on failure: then it goes on as it was
}

}  // namespace

int main(int argc, char** argv) {
  spin_briefly(argv);
  return dflash::cli::run_program(argc, argv);
}
