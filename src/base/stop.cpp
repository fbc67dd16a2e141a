#include "base/stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace dflash {
namespace {

std::atomic<int> stop_signal{0};

void on_signal(int number) {
  if (stop_signal.exchange(number) != 0) _exit(128 + number);
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;  // no SA_RESTART: a prompt waiting for input must end too
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() {
  return stop_signal.load(std::memory_order_relaxed) != 0;
}

int stop_exit_code() {
  const int number = stop_signal.load();
  return number == 0 ? 0 : 128 + number;
}

void set_stop_signal(int signal_number) {
  stop_signal.store(signal_number);
}

}  // namespace dflash
