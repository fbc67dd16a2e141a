// What clients ask for: the JSON of OpenAI's /v1/chat/completions and /v1/completions -> a request
// to the engine and how its answer is to be told. Whatever is not understood, not supported or out
// of range is refused with the field's name (SV-09).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/engine.h"
#include "serve/fields.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace dflash::serve {

/// The model as requests see it.
struct Served {
  std::string name;  // what `model` has to say where a request has one
  std::shared_ptr<const text::Tokenizer> tokenizer;
  text::ChatTemplate chat;
  /// The same with thinking off and on; none: the template has no such switch.
  std::optional<text::ChatTemplate> no_thinking = {}, thinking = {};
  int64_t max_positions = 0, vocab_size = 0;
  decode::Sampling sampling = {.temperature = 1.0};  // of a request that does not say
  int64_t max_new_tokens = 1024;
  bool has_seed = false;  // sampling.seed holds for requests without one; else each gets its own
};

/// Sets no_thinking and thinking where the template knows the switch.
void add_thinking(Served& served);

enum class Endpoint { kChat, kCompletion };

struct Query {
  Endpoint endpoint = Endpoint::kChat;
  decode::Request request = {};
  std::vector<std::string> stops = {};  // the text ends before the first of them that is complete
  bool stream = false;
  bool include_usage = false;       // stream: a chunk with the usage
  bool include_acceptance = false;  // stream: what was drafted, in every chunk (ours)
};

/// Error: ApiError.
Query parse_query(Endpoint endpoint, std::string_view body, const Served& served);

}  // namespace dflash::serve
