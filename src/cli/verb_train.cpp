// train: dataset (+ features, or the target live in the same process) -> a drafter.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "cli/checks.h"
#include "cli/drafters.h"
#include "cli/options.h"
#include "cli/profile_option.h"
#include "cli/ranks.h"
#include "cli/training.h"
#include "cli/verbs.h"
#include "data/features.h"
#include "train/checkpoint.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

/// The resolved options of the run in `out`; nothing when train did not begin it.
std::optional<std::string> earlier_options(const fs::path& out) {
  if (!fs::exists(out / "run.json")) return std::nullopt;
  const Json config = read_json(out / "run.json").value("config", Json::object());
  if (!config.contains("command_line")) return std::nullopt;
  return config["command_line"].get<std::string>();
}

/// A resumed drafter is the checkpoint's: options that would shape a fresh one change nothing.
void warn_of_ignored(const fs::path& out, const VerbParser& parser) {
  constexpr std::array kShaping = {"layers",   "block-size",  "num-taps", "taps",
                                   "mask-id",  "draft-vocab", "window",   "window-bound",
                                   "in-block", "init-seed",   "init",     "init-from"};
  const auto earlier = earlier_options(out);
  if (!earlier) return;
  for (const std::string& line : parser.changed_options(*earlier)) {
    const std::string name = line.substr(0, line.find('='));
    if (std::find(kShaping.begin(), kShaping.end(), name) == kShaping.end()) continue;
    log_warning("resume: --{} is ignored: the drafter is the checkpoint's, begun with {}", name,
                line);
  }
}

/// True when `out` holds checkpoints to go on from: of this very command, or `resume` is given.
/// Error: they are of other options.
bool goes_on(const fs::path& out, const VerbParser& parser, bool resume) {
  if (!train::latest_checkpoint(out / "checkpoints")) return resume;
  if (resume) {
    warn_of_ignored(out, parser);
    return true;
  }
  const auto earlier = earlier_options(out);
  if (!earlier) {
    fail("{} was not begun by train\n  hint: --resume goes on with these options", out.string());
  }
  const auto changed = parser.changed_options(*earlier);
  if (changed.empty()) return true;
  fail(
      "{} was begun with other options: {}\n  hint: --resume goes on with these, --out takes "
      "another folder",
      out.string(), fmt::join(changed, ", "));
}

/// Options that would have no effect, or whose like the drafter brings along.
void check_together(const CLI::App& app, const TrainingFlags& flags, const std::string& init) {
  const auto given = [&](const char* name) { return app.count(name) > 0; };
  if (given("--steps") && given("--epochs")) {
    fail("train: the length: expected --steps or --epochs, got both");
  }
  if (given("--noise-scale") && flags.noise == "none") {
    fail("--noise-scale: expected --noise gaussian or uniform with it, got none");
  }
  if (!flags.init_from.empty()) {
    if (init != "fresh") fail("--init {}: expected no --init-from, which brings weights", init);
    for (const char* name : {"--layers", "--block-size", "--num-taps", "--taps", "--mask-id",
                             "--draft-vocab", "--window", "--window-bound", "--in-block"}) {
      if (given(name)) log_warning("{} is ignored: the drafter is --init-from's", name);
    }
  } else if (!flags.features.empty() && given("--num-taps") && !given("--taps")) {
    const auto own = static_cast<int64_t>(data::FeatureReader(flags.features).info().taps.size());
    const auto asked = app.get_option("--num-taps")->as<int64_t>();
    if (own != asked) fail("--num-taps: expected {}, the features' own, got {}", own, asked);
  }
}

}  // namespace

int run_train(int argc, char** argv) {
  VerbParser parser("train", "Trains a drafter for a target.");
  TargetOptions target;
  TrainingFlags flags;
  ValidationOptions validation;
  RankOptions ranks;
  std::string init = "fresh";
  bool json = false;
  jobs::TrainingOptions options;
  ProfileOption profile;
  auto& app = parser.app();
  target.add(app);
  app.add_option("--dataset", flags.dataset, "dataset folder (from prepare)")->required();
  app.add_option("--features", flags.features, "features folder (from capture; empty: live)");
  app.add_option("--out", flags.out, "run folder");
  app.add_flag("--resume", options.resume,
               "go on from the newest checkpoint of --out though options have changed");
  app.add_option("--init-from", flags.init_from, "drafter to start from (weights only)");
  app.add_option("--init", init,
                 "fresh weights, or target-layers: copies of the target's last blocks")
      ->check(CLI::IsMember({"fresh", "target-layers"}));
  app.add_option("--minutes", flags.minutes,
                 "fit the schedule to this time (0: --epochs or --steps)")
      ->check(number_from(0));
  add_drafter_options(app, options.drafter);
  add_train_options(app, options.train, flags);
  validation.add(app);
  ranks.add(app);
  app.add_flag("--json", json, "the result as JSON on stdout");
  profile.add(app);
  if (auto code = parser.parse(argc, argv)) return *code;

  flags.apply(options);
  if (flags.minutes > 0 && options.train.total_steps > 0) {
    fail("train: the length: expected --minutes or --steps, got both");
  }
  check_together(app, flags, init);
  train::check_options(options.train);
  options.drafter.from_target_layers = init == "target-layers";
  options.config = {{"command_line", parser.resolved()}};
  return ranks.run(parser, argc, argv, [&](Comm& comm) {
    const auto session = profile.start(comm.rank());
    options.comm = &comm;
    options.resume = comm.lead(comm.leads() && goes_on(options.out, parser, options.resume));
    const auto model = target.load();
    const auto result = jobs::train_drafter(model, options, validation.callback(model, comm));
    if (!comm.leads()) return 0;
    if (result.finished && result.last.step == 0) {
      log_info("{} was complete; another --out trains anew", options.out.string());
    }
    finish_job(parser, options.out, result, json);
    return 0;
  });
}

}  // namespace dflash::cli
