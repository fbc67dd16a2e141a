// Runs task sets plainly and with drafters, in turn on the same prompts, and reports tau, speed,
// equality of the texts and repetition.
//
// Timing mode (batch 1) decodes each prompt plainly and with every drafter before it goes on to the
// next prompt, so that slow moments of the machine hit all arms alike. Batched mode is for a quick
// tau (a trainer's validation): same texts, same tau, no speeds worth comparing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "decode/engine.h"
#include "eval/report.h"
#include "eval/tasks.h"
#include "target/target.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace dflash::eval {

/// A named way to propose; the proposer outlives the evaluation.
struct Drafter {
  std::string name;
  decode::Proposer* proposer = nullptr;
};

struct EvalOptions {
  int64_t max_new_tokens = 256;
  decode::Sampling sampling = {};  // task i adds i to the seed
  int64_t batch = 1;               // 1: timing mode
  bool with_plain = true;          // baseline of speed and text; off: tau only
  bool with_lookup = true;         // prompt lookup as one more arm
  /// Error when Report::ineffective() names a drafter; off for one at the start of its training,
  /// and for callers that show the report first.
  bool require_acceptance = true;
  std::vector<int64_t> context_edges = {0, 128, 256, 512, 1024, 2048, 4096};
  std::function<void(int64_t done, int64_t total)> on_task = {};  // may be empty
  std::function<bool()> should_stop = {};                         // may be empty
};

struct EncodedTask {
  std::string id;
  std::vector<int64_t> prompt;
};

/// Ids in: the part that needs no tokenizer.
Report evaluate_ids(const target::Target& target, const std::vector<Drafter>& drafters,
                    const std::string& set_name, const std::vector<EncodedTask>& tasks,
                    const std::vector<int64_t>& stop_ids, const EvalOptions& options);

/// Tasks that the template refuses, or of which it does not show all, are left out and counted.
Report evaluate(const target::Target& target, const text::Tokenizer& tokenizer,
                const text::ChatTemplate& chat, const std::vector<Drafter>& drafters,
                const TaskSet& tasks, const EvalOptions& options);

}  // namespace dflash::eval
