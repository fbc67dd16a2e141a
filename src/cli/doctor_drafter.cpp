// doctor on a drafter: train = serve, its convention, traces.
#include "base/error.h"
#include "base/error_context.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/stop.h"
#include "cli/doctor.h"
#include "doctor/explain.h"
#include "doctor/record_check.h"
#include "doctor/stages.h"
#include "doctor/trace.h"
#include "eval/tasks.h"
#include "jobs/new_drafter.h"
#include "text/prompt.h"

namespace dflash::cli {
namespace {

using Questions = std::vector<text::Conversation>;

constexpr int64_t kProofPrompts = 2, kExplainPrompts = 24;  // without --limit

Questions questions_of(const DoctorOptions& options, int64_t limit) {
  Questions questions;
  for (const auto& task : eval::read_tasks(task_file(options.prompts), limit).tasks) {
    questions.push_back(task.conversation);
  }
  return questions;
}

std::vector<std::vector<int64_t>> encode(const jobs::Model& model, const Questions& questions) {
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& question : questions) {
    auto prompt = text::encode_whole_prompt(*model.tokenizer, model.chat, question);
    if (!prompt.refused.empty()) {
      fail("question {}: {}", prompts.size() + 1, prompt.why());
    }
    prompts.push_back(std::move(prompt.ids));
  }
  return prompts;
}

doctor::EvidenceOptions evidence_options(const jobs::Model& model, const DoctorOptions& options) {
  return {.max_new_tokens = options.max_new,
          .stop_ids = model.tokenizer->stop_ids(),
          .should_stop = [] { return stop_requested(); }};
}

}  // namespace

int prove_drafter(const jobs::Model& model, const draft::Drafter& drafter,
                  const DoctorOptions& options) {
  const int64_t limit = options.limit > 0 ? options.limit : kProofPrompts;
  const auto dataset = doctor::own_answers(
      *model.target, encode(model, questions_of(options, limit)), evidence_options(model, options));
  const auto convention = doctor::declared_convention(drafter.spec());
  const auto places =
      doctor::telling_anchors(drafter.spec().rule, dataset, /*random=*/8, /*seed=*/1);
  const auto trained = doctor::training_stages(convention, drafter, model.target, dataset, places);
  const auto served = doctor::decoding_stages(convention, drafter, *model.target, dataset, places);
  const auto results = doctor::compare_stages(
      trained, served, doctor::stage_tolerance(drafter.compute()), drafter.spec().draft_ids);
  doctor::Findings record;
  if (const auto path = doctor::find_record(options.drafter)) {
    record = naming(path->string(),
                    [&] { return doctor::check_record(read_json(*path), drafter.spec()); });
  }
  bool agrees = !record.any_wrong();
  for (const auto& result : results) agrees = agrees && result.agrees;
  const std::string verdict = agrees ? "train = serve" : "something is wrong, see above";
  options.print(
      {{"agrees", agrees},
       {"blocks", places.size()},
       {"documents", dataset.num_documents()},
       {"stages", doctor::stage_json(results)},
       {"record", record.to_json()}},
      fmt::format("{} blocks of {} documents, {}\n{}\n{}{}\n", places.size(),
                  dataset.num_documents(), nn::compute_name(drafter.compute()),
                  doctor::stage_table(results, "train", "serve"), record.to_text(), verdict));
  return agrees ? 0 : 1;
}

int explain_drafter(const jobs::Model& model, const draft::Drafter& drafter,
                    const DoctorOptions& options) {
  const Questions questions =
      questions_of(options, options.limit > 0 ? options.limit : kExplainPrompts);
  const auto prompts = encode(model, questions);
  std::unique_ptr<Progress> progress;
  doctor::ExplainOptions how{.evidence = evidence_options(model, options),
                             .anchors_per_document = options.anchors,
                             .confirm = options.confirm};
  how.prompt_arms = doctor::prompt_arms(*model.tokenizer, model.chat, questions, prompts);
  if (const auto unused = jobs::unused_token(model)) how.mask_ids = {*unused};
  how.on_arm = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("explain", "conventions", total);
    progress->update(done);
  };
  how.should_stop = [] { return stop_requested(); };
  const auto explanation = doctor::explain(*model.target, drafter, prompts, how);
  if (progress) progress->finish();
  options.print(explanation.to_json(), explanation.to_table());
  return explanation.verdict ? 1 : 0;
}

int record_trace(const jobs::Model& model, const draft::Drafter& drafter,
                 const DoctorOptions& options) {
  const auto dataset = doctor::own_answers(*model.target, encode(model, questions_of(options, 1)),
                                           evidence_options(model, options));
  const auto ids = dataset.document_ids(0);
  const auto length = static_cast<int64_t>(ids.size());
  const int64_t anchor =
      options.anchor >= 0 ? options.anchor : doctor::middle_of_answer(dataset, 0);
  if (anchor >= length) {
    fail("--anchor: expected a position in [0, {}), got {}", length, anchor);
  }
  const auto convention = doctor::declared_convention(drafter.spec());
  doctor::Trace trace{.program = "dflash-cpp",
                      .dtype = std::string(nn::compute_name(drafter.compute())),
                      .ids = {ids.begin(), ids.end()},
                      .anchor = anchor};
  trace.stages = doctor::trace_stages(convention, drafter, model.target, trace.ids, anchor);
  doctor::write_trace(options.record, trace, convention);
  options.print({{"trace", options.record}, {"anchor", anchor}, {"tokens", length}},
                fmt::format("{}: {} stages of the block at {} of {} tokens\n", options.record,
                            trace.stages.all().size(), anchor, length));
  return 0;
}

int compare_with_trace(const jobs::Model& model, const draft::Drafter& drafter,
                       const DoctorOptions& options) {
  const auto report =
      doctor::compare_trace(doctor::read_trace(options.trace), drafter, model.target);
  options.print(report.to_json(), report.to_text());
  return report.agrees() ? 0 : 1;
}

}  // namespace dflash::cli
