// Dispatch of the verbs; the only catch of Error (exit 1) and of our own mistakes (exit 70).
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/stop.h"
#include "base/suggest.h"
#include "cli/verb_plan.h"
#include "cli/verbs.h"
#include "cli/version.h"

namespace dflash::cli {
namespace {

constexpr std::array kVerbs = {
    Verb{"quickstart", "the whole way on the embedded default target, with one summary",
         run_quickstart},
    Verb{"regenerate", "prompts -> the target's own answers (batched, resumable)", run_regenerate},
    Verb{"prepare", "chat or text files -> a dataset: ids and what is supervised", run_prepare},
    Verb{"capture", "dataset -> features: the target's hidden states (resumable)", run_capture},
    Verb{"plan", "memory and time of a training run before it starts; does it fit?", run_plan},
    Verb{"train", "dataset (+ features) -> a drafter", run_train},
    Verb{"eval", "tau, acceptance per slot and speed of drafters, beside plain decoding", run_eval},
    Verb{"generate", "lossless speculative decoding of one prompt", run_generate},
    Verb{"chat", "the same as a conversation; shows what was drafted and accepted", run_chat},
    Verb{"serve", "OpenAI-compatible HTTP, many requests at once, and a chat page", run_serve},
    Verb{"export", "a drafter in the form of z-lab, speculators, DeepSpec or llama.cpp",
         run_export},
    Verb{"import", "a drafter of any form -> the form this program writes, tied to a target",
         run_import},
    Verb{"runs", "lists training runs, or compares them: settings, curves, tau, slots", run_runs},
    Verb{"inspect", "a model, drafter, dataset, feature folder, block or text, for people",
         run_inspect},
    Verb{"doctor", "proves train = serve for a drafter, or names the mistake", run_doctor},
};

void print_usage(std::FILE* out) {
  fmt::print(out,
             "dflash-cpp: trains DFlash drafters, proves that they are right, and runs them\n\n"
             "usage: dflash-cpp VERB [options]\n\n");
  for (const Verb& verb : kVerbs) fmt::print(out, "  {:<12} {}\n", verb.name, verb.summary);
  fmt::print(
      out,
      "\n'dflash-cpp VERB --help' shows every option with its default; 'dflash-cpp --version'.\n");
}

const Verb* find_verb(const char* name) {
  for (const Verb& verb : kVerbs) {
    if (std::strcmp(verb.name, name) == 0) return &verb;
  }
  return nullptr;
}

/// A file opened later would get the number of a closed stream, and the log would be written into
/// it. What is written to a stdout that was closed is an error, like a full disk.
void open_standard_streams() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) std::_Exit(1);
  }
}

void check_stdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  fail("stdout: the result could not be written, or not all of it\n  hint: is the disk full?");
}

/// Not fmt::print, which throws where stderr cannot be written.
void print_error(const char* kind, const std::exception& error) {
  std::fputs(fmt::format("{}: {}\n", kind, error.what()).c_str(), stderr);
}

/// What the user can mend (files, values, disk) exits with 1, or with the signal's code when a
/// signal ended the work; our own mistakes exit with 70.
int run_guarded(const Verb& verb, int argc, char** argv) {
  const auto failed = [](const std::exception& e) {
    print_error("error", e);
    return stop_requested() ? stop_exit_code() : 1;
  };
  try {
    const int code = verb.run(argc, argv);
    check_stdout();
    return code == 0 ? stop_exit_code() : code;
  } catch (const Error& e) {
    return failed(e);
  } catch (const Json::exception& e) {
    return failed(e);
  } catch (const std::system_error& e) {
    return failed(e);
  } catch (const std::exception& e) {
    print_error("internal error", e);
    return 70;
  }
}

}  // namespace

std::span<const Verb> verbs() {
  return kVerbs;
}

int run_program(int argc, char** argv) {
  open_standard_streams();
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(stdout);
    return 0;
  }
  if (name == "--version" || name == "version") {
    fmt::print("{}\n", version_text());
    return 0;
  }
  const Verb* verb = find_verb(argv[1]);
  if (verb == nullptr) {
    std::vector<std::string_view> names;
    for (const Verb& known : kVerbs) names.emplace_back(known.name);
    fmt::print(stderr, "error: no verb '{}'{}\n\n", name, did_you_mean(name, names));
    print_usage(stderr);
    return 2;
  }
  install_stop_handlers();
  return run_guarded(*verb, argc - 1, argv + 1);
}

}  // namespace dflash::cli
