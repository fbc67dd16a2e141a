// generate: one prompt, lossless speculative decoding, text on stdout.
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/progress.h"
#include "cli/drafters.h"
#include "cli/profile_option.h"
#include "cli/stream.h"
#include "cli/verbs.h"

namespace dflash::cli {
namespace {

std::string read_prompt(const std::string& text, const std::string& file) {
  if (text.empty() == file.empty()) fail("give the prompt once: as text or by --prompt-file");
  return file.empty() ? text : read_text(file, 1 << 26);
}

}  // namespace

int run_generate(int argc, char** argv) {
  VerbParser parser("generate", "Answers one prompt; the text is exactly the target's own.");
  TargetOptions target;
  ProposerOptions proposer_options;
  SamplingOptions sampling;
  std::string prompt, prompt_file, system;
  bool raw = false, json = false;
  std::optional<int64_t> log_probs;
  ProfileOption profile;
  auto& app = parser.app();
  target.add(app);
  proposer_options.add(app);
  sampling.add(app);
  app.add_option("prompt", prompt, "the user's message");
  app.add_option("--prompt-file", prompt_file, "read the message from a file");
  app.add_option("--system", system, "system message (empty: the template's own)");
  app.add_flag("--raw", raw, "no chat template: the text is continued as it is");
  CLI::Option* to_json = app.add_flag("--json", json, "text, ids and acceptance as JSON on stdout");
  app.add_option("--log-probs", log_probs,
                 "with --json: log-probability of every token, and of so many of the likeliest")
      ->needs(to_json)
      ->check(CLI::Range(0, 100));
  profile.add(app);
  if (auto code = parser.parse(argc, argv)) return *code;

  const auto session = profile.start();
  const std::string text = read_prompt(prompt, prompt_file);
  proposer_options.resolve(target);
  decode::check_sampling(sampling.sampling);
  const auto model = target.load();
  const auto proposer = proposer_options.make(model);
  std::vector<text::Message> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", text});
  const auto ids = raw ? model.tokenizer->encode(text)
                       : text::encode_prompt(*model.tokenizer, model.chat, {messages});
  if (ids.empty()) fail("the prompt is empty");
  const auto generation = stream_generation(
      model, proposer.get(), ids, sampling,
      {.print = !json, .color = knows_escapes(STDOUT_FILENO), .num_top_log_probs = log_probs});
  const std::string name = proposer ? proposer->name() : "plain";
  if (json) {
    print_json(generation.to_json(name, *model.tokenizer));
  } else {
    fmt::print("\n");
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", generation.summary(name));
  }
  return 0;
}

}  // namespace dflash::cli
