// `make prove`: drafters fine-tuned for a while, each under one deliberate mistake, and some as
// they should be; the doctor must name every mistake and accuse none that is right. Asked twice:
// `--explain` sees the finished drafter only, `--trace` also one block of its training pass. A
// mistake that costs no acceptance cannot be seen in the drafter: there the trace has to name it.
// Long: minutes a drafter on a real target. Its short form is
// tests/doctor/{explain,trace}_test.cpp.
//
//   prove DRAFTER DATASET OUT.json [STEPS]     rows that OUT.json has already are kept
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "base/timer.h"
#include "cli/drafters.h"
#include "data/dataset.h"
#include "doctor/evidence.h"
#include "doctor/explain.h"
#include "doctor/trace.h"
#include "doctor/world.h"
#include "eval/tasks.h"
#include "jobs/model.h"

namespace dflash::doctor {
namespace {

/// The mistakes that are tried; all from the list that the doctor tries against them.
const std::vector<std::string> kMistakes = {
    "labels-anchor-first", "positions-late", "anchor-masked",  "block-causal", "mask-id-0",
    "rope-base-10000",     "anchor-visible", "context-short",  "taps-up",      "taps-down",
    "tap-14-zeroed",       "taps-reversed",  "last-tap-normed"};
constexpr uint64_t kRightSeeds[] = {1, 2, 3};

struct Proof {
  jobs::Model model;
  std::shared_ptr<draft::Drafter> start = {};
  data::Dataset dataset = {};
  std::vector<std::vector<int64_t>> prompts = {};
  std::vector<PromptArm> prompt_arms = {};
  train::TrainOptions options = {};
  std::filesystem::path out = {};
  Json rows = Json::array();

  int64_t wrong() const {
    return std::count_if(rows.begin(), rows.end(),
                         [](const Json& row) { return !row.at("right").get<bool>(); });
  }

  /// Rows whose drafter alone said the truth.
  int64_t by_explain() const {
    return std::count_if(rows.begin(), rows.end(), [](const Json& row) {
      const Json truth = row.at("trained_with") == "as declared" ? "none" : row.at("trained_with");
      return row.at("named") == Json::array({truth});
    });
  }

  bool has(const std::string& name, uint64_t seed) const {
    return std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
      return row.at("trained_with") == name && row.at("seed") == seed;
    });
  }

  void save() const {
    write_json(out, {{"format", "dflash-prove"},
                     {"version", 1},
                     {"target", jobs::describe(*model.target)},
                     {"steps", options.total_steps},
                     {"wrong", wrong()},
                     {"drafters", rows}});
  }

  /// What `--trace` says to one block in the middle of the first answer, as the training pass
  /// under `convention` computed it: the one deviation that explains all stages; else "none".
  std::string traced(const draft::Drafter& drafter, const Convention& convention) const {
    const auto span = dataset.document_ids(0);
    Trace trace{.program = "training pass",
                .dtype = std::string(nn::compute_name(drafter.compute())),
                .ids = {span.begin(), span.end()},
                .anchor = middle_of_answer(dataset, 0)};
    trace.stages = trace_stages(convention, drafter, model.target, trace.ids, trace.anchor);
    const std::filesystem::path file = out.string() + ".trace.safetensors";
    write_trace(file, trace, convention);
    const TraceReport report = compare_trace(read_trace(file), drafter, model.target);
    std::filesystem::remove(file);
    if (report.agrees() || report.explained.size() != 1) return "none";
    const std::string& line = report.explained.front();  // "their ... (name)"
    const size_t begin = line.rfind('(') + 1;
    return line.substr(begin, line.rfind(')') - begin);
  }

  /// What `--explain` names: its verdict first, then what it does not tell apart from it.
  static std::vector<std::string> named_by(const Explanation& result) {
    if (!result.verdict) return {"none"};
    std::vector<std::string> named = {result.arms[*result.verdict].name};
    for (const size_t a : result.not_told_apart) named.push_back(result.arms[a].name);
    return named;
  }

  void run(const std::string& name, const Convention& convention, uint64_t seed) {
    if (has(name, seed)) return;
    const Timer timer;
    options.seed = seed;
    const auto drafter = train_under(convention, *start, dataset, model.target, options);
    const double trained = timer.seconds();
    ExplainOptions asked;
    asked.evidence.max_new_tokens = 96;
    asked.evidence.stop_ids = model.tokenizer->stop_ids();
    asked.anchors_per_document = 48;
    asked.prompt_arms = prompt_arms;
    const Explanation result = explain(*model.target, *drafter, prompts, asked);
    const std::vector<std::string> named = named_by(result);
    const std::string by_trace = traced(*drafter, convention);
    const std::string truth = name == "as declared" ? "none" : name;
    const bool holds = std::find(named.begin(), named.end(), truth) != named.end();
    const bool right = by_trace == truth && (holds || named.front() == "none");
    fmt::print("{:<20} {:>8.3f} {:>8.3f}  {:<30} {:<20} {:<6} {:>4.0f} s + {:.0f} s\n", name,
               result.declared.score, result.arms.front().score,
               fmt::format("{}", fmt::join(named, " or ")), by_trace, right ? "right" : "WRONG",
               trained, timer.seconds() - trained);
    std::fflush(stdout);
    Json row = {{"trained_with", name},           {"seed", seed},   {"named", named},
                {"named_by_trace", by_trace},     {"right", right}, {"train_seconds", trained},
                {"explanation", result.to_json()}};
    rows.push_back(std::move(row));
    save();
  }
};

Proof make_proof(const char* drafter, const char* dataset, int64_t steps) {
  const nn::Compute compute = nn::default_compute();
  Proof proof{.model = jobs::load_model(jobs::default_target(), compute)};
  proof.start = cli::load_drafter(drafter, proof.model);
  proof.dataset = data::load_dataset(dataset);
  const auto tasks = eval::read_tasks(jobs::prompts_folder() / "heldout.jsonl", 24);
  const auto& [target, tokenizer, chat] = proof.model;
  std::vector<text::Conversation> questions;
  for (const auto& task : tasks.tasks) {
    questions.push_back(task.conversation);
    proof.prompts.push_back(text::encode_prompt(*tokenizer, chat, task.conversation));
  }
  proof.prompt_arms = prompt_arms(*tokenizer, chat, questions, proof.prompts);
  proof.options.total_steps = steps;
  return proof;
}

int prove(const char* drafter, const char* dataset, const char* out, int64_t steps) {
  Proof proof = make_proof(drafter, dataset, steps);
  proof.out = out;
  if (std::filesystem::exists(out)) {
    const Json before = read_json(out);
    if (before.at("steps") != steps) fail("{}: made with other steps: remove it", out);
    proof.rows = before.at("drafters");
  }
  const Convention declared = declared_convention(proof.start->spec());
  fmt::print("{:<20} {:>8} {:>8}  {:<30} {:<20}\n", "trained with", "declared", "best", "--explain",
             "--trace");
  for (const uint64_t seed : kRightSeeds) proof.run("as declared", declared, seed);
  const auto deviations = deviations_of(declared, *proof.model.target, 400);
  for (const std::string& name : kMistakes) {
    const auto found = std::find_if(deviations.begin(), deviations.end(),
                                    [&](const Deviation& one) { return one.name == name; });
    if (found == deviations.end()) fail("prove: {}: the doctor does not try it", name);
    proof.run(name, deviate(declared, *found), 1);
  }
  fmt::print("{} drafters, {} by --explain alone, {} named wrongly\n", proof.rows.size(),
             proof.by_explain(), proof.wrong());
  return proof.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dflash::doctor

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: prove DRAFTER DATASET OUT.json [STEPS]\n");
    return 2;
  }
  try {
    return dflash::doctor::prove(argv[1], argv[2], argv[3], argc > 4 ? std::atoll(argv[4]) : 60);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
