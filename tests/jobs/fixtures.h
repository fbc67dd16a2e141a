// A tiny random target with a word tokenizer: everything that the jobs need, in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/word_tokenizer.h"
#include "jobs/model.h"
#include "jobs/prompts.h"
#include "target/random.h"

namespace dflash::jobs {

inline Model tiny_model(
    std::shared_ptr<WordTokenizer> tokenizer = std::make_shared<WordTokenizer>()) {
  auto chat = text::ChatTemplate::for_tokenizer(*tokenizer);
  auto target = target::make_random_llama(target::tiny_llama_config(), /*seed=*/7);
  return {std::move(target), std::move(tokenizer), std::move(chat)};
}

inline std::vector<Prompt> tiny_prompts(int64_t count) {
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < count; ++i) {
    prompts.push_back({"p" + std::to_string(i), "test", {{{"user", "say w" + std::to_string(i)}}}});
  }
  return prompts;
}

/// Documents of random lengths, the second half of each supervised.
inline data::Dataset tiny_dataset(int64_t documents) {
  data::Dataset dataset;
  for (int64_t d = 0; d < documents; ++d) {
    data::Document document;
    for (int64_t i = 0; i < 9 + d % 5; ++i) {
      document.ids.push_back((d * 31 + i * 7) % 90);
      document.loss_mask.push_back(i > 3 ? 1 : 0);
    }
    dataset.add(document);
  }
  return dataset;
}

}  // namespace dflash::jobs
