// train: dataset (+ features, or the target live in the same process) -> a drafter.
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/drafters.h"
#include "cli/options.h"
#include "cli/training.h"
#include "cli/verbs.h"

namespace dflash::cli {

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
  app.add_flag("--resume", options.resume, "go on from the newest checkpoint of --out");
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
  options.drafter.from_target_layers = init == "target-layers";
  options.config = {{"command_line", parser.resolved()}};
  const auto model = target.load();
  const auto result = jobs::train_drafter(model, options, validation.callback(model));
  log_info("{}: {} steps in {}, {:.0f} anchors/s, tau {:.3f}{}", options.out.string(), result.steps,
           format_duration(result.seconds), result.anchors_per_second, result.last_tau,
           result.finished ? "" : "; stopped early, --resume goes on");
  if (json) {
    print_json({{"steps", result.steps},
                {"finished", result.finished},
                {"seconds", result.seconds},
                {"anchors_per_second", result.anchors_per_second},
                {"tau", result.last_tau},
                {"best_tau", result.best_tau},
                {"checkpoint", result.last_checkpoint.string()}});
  }
  return 0;
}

}  // namespace dflash::cli
