#include "cli/verbs.h"

int main(int argc, char** argv) {
  return dflash::cli::run_program(argc, argv);
}
