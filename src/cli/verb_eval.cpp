#include "cli/verbs.h"
namespace dflash::cli { int run_eval(int, char**) { return 1; } }
