// Dispatch of the verbs; the only catch of Error (exit 1) and of our own mistakes (exit 70).
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/stop.h"
#include "base/suggest.h"
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
    Verb{"train", "dataset (+ features) -> a drafter", run_train},
    Verb{"eval", "tau, acceptance per slot and speed of drafters, beside plain decoding", run_eval},
    Verb{"generate", "lossless speculative decoding of one prompt", run_generate},
    Verb{"chat", "the same as a conversation; shows what was drafted and accepted", run_chat},
    Verb{"inspect", "a model, drafter, dataset, feature folder, block or text, for people",
         run_inspect},
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

/// What the user can mend (files, values, disk) exits with 1, or with the signal's code when a
/// signal ended the work; our own mistakes exit with 70.
int run_guarded(const Verb& verb, int argc, char** argv) {
  const auto failed = [](const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return stop_requested() ? stop_exit_code() : 1;
  };
  try {
    const int code = verb.run(argc, argv);
    return code == 0 ? stop_exit_code() : code;
  } catch (const Error& e) {
    return failed(e);
  } catch (const Json::exception& e) {
    return failed(e);
  } catch (const std::filesystem::filesystem_error& e) {
    return failed(e);
  } catch (const std::exception& e) {
    fmt::print(stderr, "internal error: {}\n", e.what());
    return 70;
  }
}

}  // namespace

std::span<const Verb> verbs() {
  return kVerbs;
}

int run_program(int argc, char** argv) {
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
