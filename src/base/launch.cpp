#include "base/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/sockets.h"
#include "base/timer.h"

namespace dflash {
namespace {

constexpr double kSeeItSeconds = 10;  // until the ranks that are left are asked to end
constexpr double kEndSeconds = 60;    // from then until they are killed

struct Rank {
  pid_t pid = -1;
  std::optional<int> code;
};

std::string random_token() {
  std::array<unsigned char, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail("ranks: no random numbers: {}", std::strerror(errno));
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// This process's own environment but for `changed`.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& changed) {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    if (!changed.contains(entry.substr(0, entry.find('=')))) out.push_back(entry);
  }
  for (const auto& [name, value] : changed) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// Blocked for this process, as they were for the ranks.
class SignalsHere {
 public:
  SignalsHere() {
    ::sigemptyset(&awaited_);
    for (int number : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&awaited_, number);
    ::sigprocmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~SignalsHere() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  void restore_in_child() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  /// The next signal; 0 when none came in a second.
  int wait() const {
    const timespec second{1, 0};
    return std::max(0, ::sigtimedwait(&awaited_, nullptr, &second));
  }

 private:
  sigset_t awaited_ = {}, before_ = {};
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}

  int run() {
    const std::string token = random_token();
    {
      const Socket listener = listen_at({"127.0.0.1", 0});
      const std::string port = std::to_string(own_end(listener).port);
      for (int r = 0; r < options_.count; ++r) {
        std::map<std::string, std::string> own = {
            {"RANK", std::to_string(r)},
            {"LOCAL_RANK", std::to_string(r)},
            {"WORLD_SIZE", std::to_string(options_.count)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", port},
            {"DFLASH_RUN_TOKEN", token},
            {"DFLASH_LAUNCHED", "1"},
            {"OMP_NUM_THREADS", std::to_string(options_.threads)}};
        if (r == 0) own["DFLASH_LISTENER"] = std::to_string(listener.fd());
        start(environment_with(own), r == 0 ? listener.fd() : -1);
      }
    }
    while (alive() > 0) {
      const int number = signals_.wait();
      if (number == SIGINT || number == SIGTERM) send(number);
      collect();
      end_the_rest();
    }
    int worst = 0;
    for (const Rank& rank : ranks_) worst = std::max(worst, *rank.code);
    return worst;
  }

 private:
  int64_t alive() const {
    return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.code; });
  }

  void send(int number) const {
    for (const Rank& rank : ranks_) {
      if (!rank.code) ::kill(rank.pid, number);
    }
  }

  void start(std::vector<std::string> environment, int inherited) {
    std::vector<std::string> arguments = options_.arguments;
    arguments.insert(arguments.begin(), "dflash-cpp");
    const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      send(SIGKILL);
      fail("ranks: cannot start a process: {}", std::strerror(errno));
    }
    if (pid > 0) {
      ranks_.push_back({pid, {}});
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);  // a terminal's signal comes once, from the parent
    if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
    signals_.restore_in_child();
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }

  void collect() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto rank =
          std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.pid == pid; });
      if (rank == ranks_.end()) continue;
      rank->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      const bool stopped = rank->code == 128 + SIGINT || rank->code == 128 + SIGTERM;
      if (rank->code == 0 || stopped) continue;
      if (WIFSIGNALED(status)) {
        log_warning("rank {} was ended by signal {} ({})", rank - ranks_.begin(), WTERMSIG(status),
                    ::strsignal(WTERMSIG(status)));
      }
      if (!failed_) failed_.emplace();
    }
  }

  void end_the_rest() {
    if (!failed_ || failed_->seconds() < kSeeItSeconds) return;
    const bool kill = failed_->seconds() > kSeeItSeconds + kEndSeconds;
    if (kill || !asked_) send(kill ? SIGKILL : SIGTERM);
    asked_ = true;
  }

  const LaunchOptions& options_;
  SignalsHere signals_;
  std::vector<Rank> ranks_;
  std::optional<Timer> failed_;  // since the first failure
  bool asked_ = false;
};

}  // namespace

int launch_ranks(const LaunchOptions& options) {
  return Launcher(options).run();
}

}  // namespace dflash
