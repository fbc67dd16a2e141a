#include "doctor/evidence.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace dflash::doctor {

std::vector<decode::Result> decode_prompts(const target::Target& target, decode::Proposer* proposer,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const EvidenceOptions& options) {
  std::vector<decode::Request> requests;
  for (const auto& prompt : prompts) {
    requests.push_back(
        {.prompt = prompt, .max_new_tokens = options.max_new_tokens, .stop_ids = options.stop_ids});
  }
  decode::Run run = decode::generate(
      target, proposer, requests, {.max_batch = options.batch, .should_stop = options.should_stop});
  if (std::find(run.finished.begin(), run.finished.end(), false) != run.finished.end()) {
    fail("doctor: stopped before it was done");
  }
  return std::move(run.results);
}

data::Dataset own_answers(const target::Target& target,
                          const std::vector<std::vector<int64_t>>& prompts,
                          const EvidenceOptions& options) {
  const auto results = decode_prompts(target, nullptr, prompts, options);
  data::Dataset dataset;
  for (size_t i = 0; i < prompts.size(); ++i) {
    data::Document document;
    document.ids = prompts[i];
    document.key = i + 1;
    document.loss_mask.assign(prompts[i].size(), 0);
    const auto& answer = results[i].tokens;
    document.ids.insert(document.ids.end(), answer.begin(), answer.end());
    document.loss_mask.resize(document.ids.size(), 1);
    dataset.add(document);
  }
  return dataset;
}

int64_t middle_of_answer(const data::Dataset& dataset, int64_t document) {
  const auto mask = dataset.document_mask(document);
  const auto answer = static_cast<int64_t>(std::count(mask.begin(), mask.end(), uint8_t{1}));
  if (answer == 0) fail("doctor: document {}: expected an answer, got none", document);
  return static_cast<int64_t>(mask.size()) - answer + answer / 2;
}

std::vector<at::Tensor> hidden_states(const target::Target& target, const data::Dataset& dataset,
                                      const std::vector<int64_t>& layers) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> result;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    const auto ids = dataset.document_ids(d);
    const auto rows = static_cast<int64_t>(ids.size());
    const auto state = target.new_state();
    const target::Segment segment{state.get(), 0, rows};
    const at::Tensor ids_R = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
    result.push_back(
        target.forward({ids_R, at::arange(rows, at::kLong), {&segment, 1}}, {.taps = layers})
            .taps_RF);
  }
  return result;
}

}  // namespace dflash::doctor
