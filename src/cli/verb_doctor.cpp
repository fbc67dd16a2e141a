// doctor: proves train = serve for a drafter, finds the convention it was trained under, compares
// with another program's trace, looks into datasets and features.
#include "base/error.h"
#include "cli/checks.h"
#include "cli/doctor.h"
#include "cli/drafters.h"
#include "cli/verbs.h"
#include "doctor/dataset_check.h"
#include "doctor/feature_check.h"

namespace dflash::cli {
namespace {

int check_features(const jobs::Model& model, const draft::Drafter* drafter,
                   const DoctorOptions& options) {
  const auto dataset = data::load_dataset(options.dataset);
  const data::FeatureReader first(options.features[0]);
  if (options.features.size() == 1) {
    const auto findings = doctor::check_features_of(first, dataset, *model.target);
    options.print(findings.to_json(), findings.to_text());
    return findings.any_wrong() ? 1 : 0;
  }
  const data::FeatureReader second(options.features[1]);
  const auto comparison =
      doctor::compare_features(first, second, dataset, drafter, model.target.get());
  options.print(comparison.to_json(), comparison.to_text());
  return comparison.agrees() ? 0 : 1;
}

int check_dataset(const jobs::Model& model, const DoctorOptions& options) {
  const auto findings = doctor::check_dataset(data::load_dataset(options.dataset), *model.tokenizer,
                                              model.target.get());
  options.print(findings.to_json(), findings.to_text());
  return findings.any_wrong() ? 1 : 0;
}

void check_asked(const DoctorOptions& options) {
  if (options.drafter.empty() && options.dataset.empty()) {
    fail("doctor: expected --drafter or --dataset, got neither");
  }
  if (!options.features.empty() && options.dataset.empty()) {
    fail("--features: expected --dataset too: the documents that were captured");
  }
  if (options.drafter.empty() &&
      (options.explain || !options.trace.empty() || !options.record.empty())) {
    fail("--explain, --trace and --record: expected --drafter too");
  }
  if (!options.dataset.empty() && !options.drafter.empty() && options.features.size() != 2) {
    fail("--dataset: expected no --drafter (only a comparison of two --features takes one)");
  }
  const int questions = (options.explain ? 1 : 0) + (options.trace.empty() ? 0 : 1) +
                        (options.record.empty() ? 0 : 1) + (options.dataset.empty() ? 0 : 1);
  if (questions > 1) {
    fail("doctor: expected one of --explain, --trace, --record and --dataset, got {}", questions);
  }
}

}  // namespace

void DoctorOptions::add(CLI::App& app) {
  target.add(app);
  app.add_option("--drafter", drafter,
                 "drafter or run folder (empty, and no --dataset: the bundled one, when the target "
                 "is its own)");
  app.add_flag("--explain", explain,
               "score the drafter under every single deviation: which was it trained with?");
  app.add_option("--trace", trace, "compare with another program's trace file (docs/TRACE.md)");
  app.add_option("--record", record, "write our trace of one block to this file");
  app.add_option("--anchor", anchor, "position of the recorded block (-1: mid-answer)")
      ->check(integer_from(-1));
  app.add_option("--dataset", dataset, "check a dataset folder; with --features, its captures");
  app.add_option("--features", features, "one capture: check it; two: compare them")
      ->expected(1, 2);
  app.add_option("--tasks", prompts,
                 "prompts to answer: heldout, humaneval, or a .jsonl or .json file");
  app.add_option("--limit", limit, "first prompts of the set (0: 24 to explain, 2 to prove)")
      ->check(CLI::Range(0, 4096));
  app.add_option("--max-new", max_new, "tokens of an answer at most")->check(CLI::Range(2, 65536));
  app.add_option("--anchors", anchors, "anchors of an answer at most (explain)")
      ->check(CLI::Range(1, 65536));
  app.add_option("--confirm", confirm, "best deviations to decode for real (explain)")
      ->check(CLI::Range(0, 16));
  app.add_flag("--json", json, "the report as JSON on stdout");
}

void DoctorOptions::print(const Json& json_report, const std::string& text) const {
  if (json) {
    print_json(json_report);
  } else {
    fmt::print("{}", text);
  }
}

int run_doctor(int argc, char** argv) {
  VerbParser parser("doctor",
                    "Proves train = serve for a drafter, or names the mistake. Exit code 1: "
                    "something is wrong.");
  DoctorOptions options;
  options.add(parser.app());
  if (auto code = parser.parse(argc, argv)) return *code;
  if (options.drafter.empty() && options.dataset.empty() && options.features.empty()) {
    options.drafter = take_bundled_drafter(options.target);
  }
  check_asked(options);
  const auto model = options.target.load();
  std::shared_ptr<const draft::Drafter> drafter;
  if (!options.drafter.empty()) {
    drafter = load_drafter(options.drafter, model);
    decode::make_draft_proposer(drafter, *model.target);  // whether it fits at all
  }
  if (!options.features.empty()) return check_features(model, drafter.get(), options);
  if (!options.dataset.empty()) return check_dataset(model, options);
  if (options.explain) return explain_drafter(model, *drafter, options);
  if (!options.record.empty()) return record_trace(model, *drafter, options);
  if (!options.trace.empty()) return compare_with_trace(model, *drafter, options);
  return prove_drafter(model, *drafter, options);
}

}  // namespace dflash::cli
