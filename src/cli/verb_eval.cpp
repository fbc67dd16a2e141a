// eval: drafters side by side on task sets, beside plain decoding and prompt lookup.
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/stop.h"
#include "cli/checks.h"
#include "cli/drafters.h"
#include "cli/profile_option.h"
#include "cli/verbs.h"
#include "eval/evaluate.h"

namespace dflash::cli {
namespace {

/// --drafter, --proposer, --draft-tokens.
struct Drafters {
  std::vector<std::string> paths, kinds = {"drafter", "auto"};
  int64_t max_proposals = 0;
  bool bundled = false;

  void add(CLI::App& app) {
    app.add_option("--drafter", paths,
                   "drafter or run folder; several are compared (none: the bundled one, when the "
                   "target is its own)");
    app.add_option("--proposer", kinds,
                   "ways of drafting to compare, for each drafter: drafter, auto, all, tree, "
                   "chains; lookup-tree needs none (see generate --help)")
        ->delimiter(',')
        ->check(CLI::IsMember({"drafter", "auto", "all", "tree", "chains", "lookup-tree"}));
    app.add_option("--draft-tokens", max_proposals,
                   "drafts a pass at most (0: block size - 1; of a tree 15, or 7 without AMX)")
        ->check(integer_from(0, 4096));
  }
  /// Takes the bundled one where none is given and a kind can use it.
  void resolve(const TargetOptions& target) {
    const bool needed =
        std::ranges::any_of(kinds, [](const auto& k) { return k != "lookup-tree"; });
    if (!paths.empty() || !needed) return;
    const std::string found = take_bundled_drafter(target);
    if (found.empty()) return;
    paths = {found};
    bundled = true;
  }
  std::string arm_name(const std::string& path, const std::string& kind) const {
    if (bundled) return kind == "drafter" ? "bundled" : fmt::format("bundled ({})", kind);
    return paths.size() == 1 ? kind : fmt::format("{} ({})", path, kind);
  }
};

/// Drafters with the proposers that the evaluation borrows.
struct Arms {
  std::vector<std::unique_ptr<decode::Proposer>> owned;
  std::vector<eval::Drafter> drafters;

  void add(const std::string& name, std::unique_ptr<decode::Proposer> proposer) {
    owned.push_back(std::move(proposer));
    drafters.push_back({name, owned.back().get()});
  }
  void add(const Drafters& given, const jobs::Model& model) {
    for (const std::string& path : given.paths) {
      for (const std::string& kind : given.kinds) {
        if (kind == "lookup-tree") continue;
        add(given.arm_name(path, kind), make_proposer(kind, path, model, given.max_proposals));
      }
    }
    if (std::ranges::count(given.kinds, "lookup-tree") > 0) {
      add("lookup-tree", make_lookup("lookup-tree", model, given.max_proposals));
    }
  }
};

eval::Report run_set(const jobs::Model& model, const Arms& arms, const std::string& set,
                     int64_t limit, eval::EvalOptions options) {
  const auto tasks = eval::read_tasks(task_file(set), limit);
  std::unique_ptr<Progress> progress;
  options.on_task = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("eval " + tasks.name, "answers", total);
    const int64_t ways = total / static_cast<int64_t>(tasks.tasks.size());
    progress->update(done, ways > 1 ? fmt::format("every task {} ways", ways) : "");
  };
  options.should_stop = [] { return stop_requested(); };
  auto report =
      eval::evaluate(*model.target, *model.tokenizer, model.chat, arms.drafters, tasks, options);
  if (progress) progress->finish();
  return report;
}

}  // namespace

int run_eval(int argc, char** argv) {
  VerbParser parser("eval", "tau, acceptance per slot and speed of drafters on task sets.");
  TargetOptions target;
  SamplingOptions sampling;
  eval::EvalOptions options;
  Drafters drafters;
  std::vector<std::string> sets = {"heldout", "humaneval"};
  int64_t limit = 0;
  std::string out;
  bool no_lookup = false, no_plain = false, json = false;
  ProfileOption profile;
  auto& app = parser.app();
  target.add(app);
  sampling.add(app);
  drafters.add(app);
  app.add_option("--tasks", sets, "heldout, humaneval, or .jsonl or .json files")->delimiter(',');
  app.add_option("--limit", limit, "first tasks of each set (0: all)")->check(integer_from(0));
  app.add_option("--batch", options.batch, "1: speeds are measured; more: tau only, quick")
      ->check(integer_from(1, 4096));
  app.add_flag("--no-lookup", no_lookup, "leave out the prompt-lookup baseline");
  app.add_flag("--no-plain", no_plain, "leave out plain decoding: tau only, texts not compared");
  app.add_option("--out", out, "also write the report to this JSON file (empty: none)");
  app.add_flag("--json", json, "the report as JSON on stdout");
  profile.add(app);
  if (auto code = parser.parse(argc, argv)) return *code;

  const auto session = profile.start();
  options.max_new_tokens = sampling.max_new_tokens;
  options.sampling = sampling.sampling;
  options.with_lookup = !no_lookup;
  options.with_plain = !no_plain;
  options.require_acceptance = false;  // after all tables
  decode::check_sampling(options.sampling);
  for (const std::string& set : sets) task_file(set);
  drafters.resolve(target);
  const auto model = target.load();
  Arms arms;
  arms.add(drafters, model);
  Json reports = Json::array();
  std::vector<std::string> problems;
  for (const std::string& set : sets) {
    const auto report = run_set(model, arms, set, limit, options);
    reports.push_back(report.to_json());
    if (!json) fmt::print("{}\n", report.to_table());
    for (const auto& problem : report.ineffective()) problems.push_back(set + ": " + problem);
    if (!report.lossless()) {
      problems.push_back(set + ": a text differs from plain decoding's; see the report");
    }
    if (stop_requested()) break;
  }
  if (!out.empty()) {
    write_json(out, {{"sets", reports}});
    parser.save_options(out);
  }
  if (json) print_json({{"sets", reports}});
  if (!problems.empty()) fail("{}", fmt::join(problems, "\nerror: "));
  return 0;
}

}  // namespace dflash::cli
