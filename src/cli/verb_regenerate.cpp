// regenerate: prompts -> the target's own answers.
#include "cli/checks.h"
#include "cli/options.h"
#include "cli/profile_option.h"
#include "cli/verbs.h"
#include "jobs/regenerate.h"

namespace dflash::cli {

int run_regenerate(int argc, char** argv) {
  VerbParser parser("regenerate", "Lets the target answer prompts; exact ids are kept.");
  TargetOptions target;
  jobs::RegenerateOptions options;
  std::string prompts_path, out = "answers.jsonl";
  int64_t limit = 0;
  bool json = false;
  ProfileOption profile;
  auto& app = parser.app();
  target.add(app);
  app.add_option("--prompts", prompts_path, ".jsonl, or a .json array, of `prompt` or `messages`")
      ->required();
  app.add_option("--out", out, "jsonl of answers; an existing one is gone on with");
  app.add_option("--limit", limit, "first prompts only (0: all)")->check(integer_from(0));
  app.add_option("--max-new", options.max_new_tokens, "tokens of one answer at most")
      ->check(integer_from(1, kMaxNewTokens));
  app.add_option("--samples", options.samples, "answers a prompt: one greedy, the others sampled")
      ->check(integer_from(1));
  app.add_option("--temperature", options.temperature, "temperature of the sampled answers")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-p", options.top_p,
                 "sampled answers take the likeliest tokens of this total probability")
      ->check(positive_share());
  app.add_option("--seed", options.seed, "seed of the sampled answers");
  app.add_option("--batch", options.batch, "sequences in one pass")->check(integer_from(1, 4096));
  app.add_option("--max-seconds", options.max_seconds,
                 "take no new prompts after this time (0: no limit)")
      ->check(number_from(0));
  app.add_flag("--json", json, "the report as JSON on stdout");
  profile.add(app);
  if (auto code = parser.parse(argc, argv)) return *code;

  const auto session = profile.start();
  options.out = out;
  const auto model = target.load();
  const auto file = jobs::read_prompts(prompts_path, limit);
  auto report = jobs::regenerate(model, file.prompts, options);
  report.skip(file.left_out);
  finish_job(parser, out, report, json);
  return 0;
}

}  // namespace dflash::cli
