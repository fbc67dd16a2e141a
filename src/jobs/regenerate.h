// prompts -> the target's own answers, batched and resumable. Exact ids are kept and never
// re-tokenised; an answer that the budget cut gets no invented end token.
//   OUT.jsonl        {"id", "prompt_ids", "answer_ids", "finish", "temperature", "seed"} a line
//   OUT.jsonl.json   settings and target fingerprint; a resumed run must have the same
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "jobs/model.h"
#include "jobs/prompts.h"

namespace dflash::jobs {

struct RegenerateOptions {
  std::filesystem::path out;     // the .jsonl file
  int64_t max_new_tokens = 256;  // budget of one answer
  int64_t samples = 1;           // answers a prompt: the first greedy, the others sampled
  double temperature = 0.8;      // of the sampled answers
  double top_p = 0.95;           // of the sampled answers
  uint64_t seed = 1;             // of the sampled answers
  int64_t batch = 64;            // sequences in one pass
  double max_seconds = 0;        // stop taking new prompts after this time; 0: no limit
};

struct RegenerateReport {
  int64_t answers = 0, resumed = 0;  // resumed: those asked for that the file had
  int64_t tokens = 0, cut_by_budget = 0;
  int64_t dropped = 0;  // answers that a signal broke off; they are made again from their beginning
  std::map<std::string, int64_t> skipped = {};  // records without an answer, by reason
  double seconds = 0;
  bool stopped = false;  // by a signal or the time limit; the file is whole and can go on

  void skip(const data::Drops& drops);
  int64_t num_skipped() const;
  /// One line for people.
  std::string text() const;
  Json to_json() const;
};

/// A prompt that the target cannot take (encode_prompt) has no answers and is counted, again in a
/// resumed run. Errors: none can be answered, `out` was made with other settings, or another
/// process writes to it.
RegenerateReport regenerate(const Model& model, const std::vector<Prompt>& prompts,
                            const RegenerateOptions& options);

}  // namespace dflash::jobs
