// prepare: chat or text files -> a dataset folder, with a table of what was dropped and why.
#include <cstdio>

#include "base/log.h"
#include "base/output.h"
#include "cli/checks.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "data/prepare.h"
#include "text/chat.h"

namespace dflash::cli {
namespace {

/// Default of --held-out: HumanEval and the bundled held-out prompts, where they are found.
std::vector<std::filesystem::path> default_held_out() {
  std::vector<std::filesystem::path> found;
  for (const auto& path :
       {jobs::assets_folder() / "HumanEval.jsonl", jobs::prompts_folder() / "heldout.jsonl"}) {
    if (std::filesystem::exists(path)) {
      found.push_back(path);
    } else {
      log_warning("{} is not here: nothing is held out for it", path.string());
    }
  }
  return found;
}

}  // namespace

int run_prepare(int argc, char** argv) {
  VerbParser parser("prepare", "Turns conversations, answers or text into a dataset.");
  TargetOptions target;
  data::PrepareOptions options;
  std::vector<std::string> files, held_out;
  std::string out = "dataset";
  bool keep_loops = false, keep_duplicates = false, json = false;
  auto& app = parser.app();
  target.add_path(app);
  app.add_option("files", files,
                 ".jsonl, or a .json array (messages, conversations, prompt/response, answers of "
                 "regenerate, text) or .txt")
      ->required();
  app.add_option("--out", out, "dataset folder");
  app.add_option("--max-tokens", options.max_tokens, "tokens of a document at most")
      ->check(integer_from(2, 1 << 20));
  app.add_flag("--plain-text", options.plain_text, "take plain text, every token supervised");
  app.add_flag("--keep-loops", keep_loops, "keep answers that loop");
  app.add_flag("--keep-duplicates", keep_duplicates, "keep documents met before");
  app.add_option("--held-out", held_out,
                 "drop what shares 13 words in a row with these files (default: HumanEval and the "
                 "bundled held-out prompts)");
  app.add_flag("--shuffle", options.shuffle, "shuffle over all files, before --max-documents");
  app.add_option("--seed", options.seed, "seed of the shuffle");
  app.add_option("--max-documents", options.max_documents, "documents kept at most (0: all)")
      ->check(integer_from(0));
  app.add_flag("--json", json, "the report as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  options.drop_loops = !keep_loops;
  options.drop_duplicates = !keep_duplicates;
  options.held_out = held_out.empty()
                         ? default_held_out()
                         : std::vector<std::filesystem::path>(held_out.begin(), held_out.end());
  claim_folder(out, "dataset.json");
  const auto tokenizer = jobs::load_tokenizer(target.resolved_path());
  const auto chat = jobs::load_chat(*tokenizer, target.chat_options());
  const auto prepared = data::prepare({files.begin(), files.end()}, *tokenizer, &chat, options);
  data::save_dataset(out, prepared.dataset);
  parser.save_options(out);
  if (json) {
    print_json(prepared.report.to_json());
  } else {
    fmt::print("{}", prepared.report.text());
  }
  std::fflush(stdout);  // before the line on stderr
  log_info("dataset written to {}", out);
  return 0;
}

}  // namespace dflash::cli
