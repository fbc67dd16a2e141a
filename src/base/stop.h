// SIGINT/SIGTERM as a flag that long work polls: it finishes the step, saves, and leaves.
#pragma once

namespace dflash {

/// Installs the handlers; a second signal ends the process at once.
void install_stop_handlers();

/// True once SIGINT or SIGTERM came.
bool stop_requested();

/// 130 after SIGINT, 143 after SIGTERM, 0 when no signal came.
int stop_exit_code();

/// For tests: behaves as if the signal had come (0 clears).
void set_stop_signal(int signal_number);

}  // namespace dflash
