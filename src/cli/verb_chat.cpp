// chat: a conversation in the terminal; drafted-and-accepted tokens are green.
#include <unistd.h>

#include <iostream>

#include "base/progress.h"
#include "base/stop.h"
#include "cli/drafters.h"
#include "cli/stream.h"
#include "cli/verbs.h"

namespace dflash::cli {
namespace {

/// Next line of the user; nullopt at the end of input, on /quit or on a signal.
std::optional<std::string> read_line(bool interactive) {
  if (interactive) fmt::print(stderr, "\n> ");
  std::string line;
  if (!std::getline(std::cin, line) || stop_requested()) return std::nullopt;
  line.resize(line.find_last_not_of(" \t\r") + 1);  // a file's line end, or nothing but blanks
  if (line == "/quit") return std::nullopt;
  return line;
}

}  // namespace

int run_chat(int argc, char** argv) {
  VerbParser parser("chat", "Talks with the target; shows what was drafted and accepted.");
  TargetOptions target;
  ProposerOptions proposer_options;
  SamplingOptions sampling;
  std::string system;
  bool plain_text = false;
  auto& app = parser.app();
  target.add(app);
  proposer_options.add(app);
  sampling.add(app);
  app.add_option("--system", system, "system message (empty: the template's own)");
  app.add_flag("--no-color", plain_text, "print without colours");
  if (auto code = parser.parse(argc, argv)) return *code;

  proposer_options.resolve(target);
  decode::check_sampling(sampling.sampling);
  const auto model = target.load();
  const auto proposer = proposer_options.make(model);
  const std::string name = proposer ? proposer->name() : "plain";
  const bool interactive = isatty(STDIN_FILENO) != 0;
  const bool color = knows_escapes(STDOUT_FILENO) && !plain_text;
  fmt::print(stderr,
             "Drafts: {}. An empty line or /reset begins a new conversation, /quit or Ctrl-D "
             "leaves.{}\n",
             proposer ? name : "none (plain decoding)",
             color ? " Green: drafted and accepted." : "");
  std::vector<text::Message> messages;
  const auto restart = [&] {
    messages.clear();
    if (!system.empty()) messages.push_back({"system", system});
  };
  restart();
  while (auto line = read_line(interactive)) {
    if (line->empty() || *line == "/reset") {
      restart();
      continue;
    }
    messages.push_back({"user", *line});
    const auto ids = text::encode_prompt(*model.tokenizer, model.chat, {messages});
    if (static_cast<int64_t>(ids.size()) >= model.target->config().max_positions) {
      fmt::print(stderr,
                 "left out: with this message the conversation has {} tokens, the target's context "
                 "{}; a new one begins\n",
                 ids.size(), model.target->config().max_positions);
      restart();
      continue;
    }
    const auto generation =
        stream_generation(model, proposer.get(), ids, sampling, {.print = true, .color = color});
    messages.push_back({"assistant", generation.text});
    fmt::print("\n");
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", generation.summary(name));
    if (stop_requested()) break;
  }
  return 0;
}

}  // namespace dflash::cli
