// plan: memory and time of a training run before it starts. Takes the options of train.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/checks.h"
#include "cli/drafters.h"
#include "cli/machine_rate.h"
#include "cli/options.h"
#include "cli/plan_shapes.h"
#include "cli/ranks.h"
#include "cli/training.h"
#include "cli/verb_plan.h"
#include "plan/plan.h"

namespace dflash::cli {
namespace {

/// What train also takes and a plan does not depend on, so that its config file serves here too.
struct Unneeded {
  ValidationOptions validation;
  RankOptions ranks;
  std::string init = "fresh";
  bool resume = false;

  void add(CLI::App& app, TrainingFlags& flags) {
    CLI::App* group = app.add_option_group("train", "options of train that change nothing here");
    group->add_option("--out", flags.out, "run folder");
    group->add_flag("--resume", resume, "go on");
    group->add_option("--init", init, "fresh or target-layers");
    group->add_option("--minutes", flags.minutes, "length of the run");
    validation.add(*group);
    ranks.add(*group);
  }
};

struct PlanFlags {
  std::string memory;
  int64_t document_tokens = 512;
  double gflops = 0, gbs = 0;
  bool json = false;

  void add(CLI::App& app) {
    app.add_option("--memory", memory, "does it fit into this: 96GB, 64GiB, ...");
    app.add_option("--document-tokens", document_tokens,
                   "mean length of a document (without --dataset)")
        ->check(integer_from(2));
    app.add_option("--gflops", gflops, "GFLOP/s of the machine that is meant (0: measure this one)")
        ->check(number_from(0));
    app.add_option("--gbs", gbs, "GB/s of its memory (0: measure this one's)")
        ->check(number_from(0));
    app.add_flag("--json", json, "the plan as JSON on stdout");
  }
  plan::Rates rates(const plan::Request& request, nn::Compute compute) const {
    plan::Rates rates{.gflops = gflops, .gbs = gbs};
    if (gflops > 0 && gbs > 0) return rates;
    rates = measure_rates(request.drafter, request.step, compute);
    if (gflops > 0) rates.gflops = gflops;
    if (gbs > 0) rates.gbs = gbs;
    return rates;
  }
};

}  // namespace

int run_plan(int argc, char** argv) {
  VerbParser parser("plan", "Predicts memory and step time of a training run; does it fit?");
  TargetOptions target;
  TrainingFlags flags;
  PlanFlags own;
  Unneeded unneeded;
  jobs::TrainingOptions options;
  auto& app = parser.app();
  target.add(app);
  app.add_option("--dataset", flags.dataset, "dataset folder (empty: see --document-tokens)");
  app.add_option("--features", flags.features,
                 "features folder, which need not be there yet (empty: the target live)");
  app.add_option("--init-from", flags.init_from, "drafter to start from: its own sizes");
  own.add(app);
  add_drafter_options(app, options.drafter);
  add_train_options(app, options.train, flags);
  unneeded.add(app, flags);
  if (auto code = parser.parse(argc, argv)) return *code;

  flags.apply(options);
  train::check_options(options.train);
  const auto path = target.resolved_path();
  const nn::Compute compute = nn::parse_compute(target.dtype);
  plan::Request request;
  request.program_bytes = program_bytes();
  if (!own.memory.empty()) request.memory_bytes = plan::parse_bytes(own.memory);
  request.target = target_shape(path, compute);
  request.drafter = drafter_shape(path, options);
  request.step = step_shape({.options = options,
                             .compute = compute,
                             .document_tokens = own.document_tokens,
                             .stored_features = !flags.features.empty()},
                            request.drafter);
  request.rates = own.rates(request, compute);
  const plan::Plan plan = plan::make_plan(request);
  if (own.json) {
    print_json(plan.to_json());
  } else {
    fmt::print("{}", plan.text());
  }
  return 0;
}

}  // namespace dflash::cli
