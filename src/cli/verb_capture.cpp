// capture: dataset -> features.
#include "cli/checks.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "jobs/capture.h"

namespace dflash::cli {

int run_capture(int argc, char** argv) {
  VerbParser parser("capture", "Stores the target's hidden states of a dataset.");
  TargetOptions target;
  jobs::CaptureOptions options;
  std::string dataset_path, out = "features";
  int64_t num_taps = 5;
  bool json = false;
  auto& app = parser.app();
  target.add(app);
  app.add_option("--dataset", dataset_path, "dataset folder (from prepare)")->required();
  app.add_option("--out", out, "features folder; an unfinished one is gone on with");
  app.add_option("--num-taps", num_taps, "tapped blocks, evenly spread (without --taps)")
      ->check(integer_from(1, 1024));
  app.add_option("--taps", options.taps, "blocks whose output is kept, by number from 0: 1,8,15")
      ->delimiter(',')
      ->check(distinct_blocks());
  app.add_flag("--keep-last", options.keep_last, "also keep the final state (for soft losses)");
  app.add_flag("--f32", options.f32, "store f32 instead of bf16");
  app.add_option("--rows", options.rows_per_pass, "tokens in one pass")
      ->check(integer_from(1, 65536));
  app.add_flag("--json", json, "the report as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  options.out = out;
  const auto model = target.load();
  if (options.taps.empty()) {
    options.taps = target::default_taps(model.target->config().num_layers, num_taps);
  }
  const auto report = jobs::capture(*model.target, data::load_dataset(dataset_path), options);
  finish_job(parser, out, report, json);
  return 0;
}

}  // namespace dflash::cli
