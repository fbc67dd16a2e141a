// `make prove`: drafters fine-tuned for a while, each under one deliberate mistake, and some as
// they should be; the doctor must name every mistake and accuse none that is right. Long: minutes a
// drafter on a real target. Its short form, on a random target, is tests/doctor/explain_test.cpp.
//
//   prove DRAFTER DATASET OUT.json [STEPS]     rows that OUT.json has already are kept
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "base/timer.h"
#include "cli/drafters.h"
#include "data/dataset.h"
#include "doctor/explain.h"
#include "doctor/world.h"
#include "eval/tasks.h"
#include "jobs/model.h"

namespace dflash::doctor {
namespace {

/// The mistakes that are tried; all from the list that the doctor tries against them.
const std::vector<std::string> kMistakes = {
    "anchor-visible", "context-short", "taps-up",         "taps-down",
    "tap-14-zeroed",  "taps-reversed", "last-tap-normed", "labels-anchor-first",
    "positions-late", "anchor-masked", "block-causal",    "mask-id-0",
    "rope-base-10000"};
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

  void run(const std::string& name, const Convention& convention, uint64_t seed) {
    if (has(name, seed)) return;
    const Timer timer;
    options.seed = seed;
    const auto drafter = train_under(convention, *start, dataset, model.target, options);
    const double trained = timer.seconds();
    const Explanation result =
        explain(*model.target, *drafter, prompts,
                {.evidence = {.max_new_tokens = 96, .stop_ids = model.tokenizer->stop_ids()},
                 .anchors_per_document = 48,
                 .prompt_arms = prompt_arms});
    const std::string verdict = result.verdict ? result.arms[*result.verdict].name : "none";
    const bool right = verdict == (name == "as declared" ? "none" : name);
    fmt::print("{:<20} {:>8.3f} {:>8.3f}  {:<20} {:<6} {:>4.0f} s + {:.0f} s\n", name,
               result.declared.score, result.arms.front().score, verdict, right ? "right" : "WRONG",
               trained, timer.seconds() - trained);
    std::fflush(stdout);
    Json row = {{"trained_with", name},     {"seed", seed},
                {"named", verdict},         {"right", right},
                {"train_seconds", trained}, {"explanation", result.to_json()}};
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
  fmt::print("{:<20} {:>8} {:>8}  {:<20}\n", "trained with", "declared", "best", "the doctor says");
  for (const uint64_t seed : kRightSeeds) proof.run("as declared", declared, seed);
  const auto deviations = deviations_of(declared, *proof.model.target, 400);
  for (const std::string& name : kMistakes) {
    for (const Deviation& deviation : deviations) {
      if (deviation.name == name) proof.run(name, deviate(declared, deviation), 1);
    }
  }
  fmt::print("{} drafters, {} named wrongly\n", proof.rows.size(), proof.wrong());
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
