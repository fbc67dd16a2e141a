// train: dataset (+ features, or the target live in the same process) -> a drafter.
#include "base/error.h"
#include "base/files.h"
#include "cli/drafters.h"
#include "cli/options.h"
#include "cli/training.h"
#include "cli/verbs.h"
#include "train/checkpoint.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

/// True when `out` holds checkpoints of this very command, which then goes on. Error: they are of
/// other options.
bool goes_on(const fs::path& out, const VerbParser& parser) {
  if (!train::latest_checkpoint(out / "checkpoints")) return false;
  const Json config = read_json(out / "run.json").value("config", Json::object());
  if (!config.contains("command_line")) {
    fail("{} was not begun by train\n  hint: --resume goes on with these options", out.string());
  }
  const auto changed = parser.changed_options(config["command_line"].get<std::string>());
  if (changed.empty()) return true;
  fail(
      "{} was begun with other options: {}\n  hint: --resume goes on with these, --out takes "
      "another folder",
      out.string(), fmt::join(changed, ", "));
}

}  // namespace

int run_train(int argc, char** argv) {
  VerbParser parser("train", "Trains a drafter for a target.");
  TargetOptions target;
  TrainingFlags flags;
  ValidationOptions validation;
  std::string init = "fresh";
  bool json = false;
  jobs::TrainingOptions options;
  auto& app = parser.app();
  target.add(app);
  app.add_option("--dataset", flags.dataset, "dataset folder (from prepare)")->required();
  app.add_option("--features", flags.features, "features folder (from capture; empty: live)");
  app.add_option("--out", flags.out, "run folder");
  app.add_flag("--resume", options.resume,
               "go on from the newest checkpoint of --out though options have changed");
  app.add_option("--init-from", flags.init_from, "drafter to start from (weights only)");
  app.add_option("--init", init, "fresh, or target-layers: copies of the target's last blocks")
      ->check(CLI::IsMember({"fresh", "target-layers"}));
  app.add_option("--minutes", flags.minutes, "fit the schedule to this time (0: epochs or steps)");
  add_drafter_options(app, options.drafter);
  add_train_options(app, options.train, flags);
  validation.add(app);
  app.add_flag("--json", json, "the result as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  flags.apply(options);
  options.resume = options.resume || goes_on(options.out, parser);
  options.drafter.from_target_layers = init == "target-layers";
  options.config = {{"command_line", parser.resolved()}};
  const auto model = target.load();
  const auto result = jobs::train_drafter(model, options, validation.callback(model));
  if (result.finished && result.last.step == 0) {
    log_info("{} was complete; another --out trains anew", options.out.string());
  }
  finish_job(parser, options.out, result, json);
  return 0;
}

}  // namespace dflash::cli
