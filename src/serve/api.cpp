#include "serve/api.h"

#include <algorithm>
#include <random>

#include "base/json_strict.h"
#include "serve/messages.h"

namespace dflash::serve {
namespace {

constexpr int64_t kMaxStops = 16, kMaxTopLogProbs = 20, kMaxCompletionLogProbs = 5;
constexpr size_t kMaxStopBytes = 1024;

OrderedJson parse_body(std::string_view body) {
  try {
    return parse_ordered_json_strictly(body);
  } catch (const Error& error) {
    throw ApiError({}, fmt::format("body: expected JSON: {}", error.what()));
  }
}

void check_model(Fields& fields, const Served& served) {
  const std::optional<std::string> model = fields.text("model");
  if (!model || *model == served.name) return;
  throw ApiError({.status = 404, .code = "model_not_found", .param = "model"},
                 fmt::format("model: expected {}, got {}", served.name, *model));
}

/// Each request without a seed gets one of its own, as clients of sampling servers expect.
uint64_t fresh_seed() {
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

decode::Sampling read_sampling(Fields& fields, const Served& served) {
  decode::Sampling sampling = served.sampling;
  sampling.temperature = fields.number("temperature", 0, 100).value_or(sampling.temperature);
  sampling.top_k = fields.integer("top_k", -1).value_or(sampling.top_k);
  if (sampling.top_k == -1) sampling.top_k = 0;  // how others say "all"
  if (const auto top_p = fields.number("top_p", 0, 1)) {
    if (*top_p == 0) refuse_field("top_p", "a number in (0, 1]", 0);
    sampling.top_p = *top_p;
  }
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min());
  if (seed) {
    sampling.seed = static_cast<uint64_t>(*seed);
  } else if (!served.has_seed) {
    sampling.seed = fresh_seed();
  }
  return sampling;
}

std::vector<std::string> read_stops(Fields& fields) {
  const OrderedJson* value = fields.find("stop");
  if (value == nullptr) return {};
  const OrderedJson list = value->is_array() ? *value : OrderedJson::array({*value});
  if (static_cast<int64_t>(list.size()) > kMaxStops) {
    refuse_field("stop", fmt::format("at most {} texts", kMaxStops), *value);
  }
  std::vector<std::string> stops;
  for (const OrderedJson& one : list) {
    const bool good = one.is_string() && !one.get_ref<const std::string&>().empty() &&
                      one.get_ref<const std::string&>().size() <= kMaxStopBytes;
    if (!good) {
      refuse_field("stop", fmt::format("texts of 1 to {} bytes", kMaxStopBytes), one);
    }
    stops.push_back(one.get<std::string>());
  }
  return stops;
}

void read_streaming(Fields& fields, Query& query) {
  query.stream = fields.boolean("stream").value_or(false);
  const OrderedJson* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!query.stream) refuse_field("stream_options", "it only with stream: true", *options);
  Fields inner(*options, "stream_options");
  query.include_usage = inner.boolean("include_usage").value_or(false);
  query.include_acceptance = inner.boolean("include_acceptance").value_or(false);
  inner.expect_neutral("include_obfuscation", {false});
  inner.expect_all_read();
}

/// max_completion_tokens is the chat form's newer name.
int64_t read_budget(Fields& fields, Endpoint endpoint, const Served& served) {
  const auto old_name = fields.integer("max_tokens", 1);
  std::optional<int64_t> budget = old_name;
  if (endpoint == Endpoint::kChat) {
    const auto name = fields.integer("max_completion_tokens", 1);
    if (name && old_name && *name != *old_name) {
      refuse_field("max_completion_tokens", fmt::format("max_tokens' {}", *old_name), *name);
    }
    if (name) budget = name;
  }
  return budget.value_or(served.max_new_tokens);
}

void read_chat_log_probs(Fields& fields, decode::Request& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogProbs);
  if (top && !wanted) refuse_field("top_logprobs", "it only with logprobs: true", *top);
  if (wanted) request.num_top_log_probs = top.value_or(0);
}

bool is_ids(const OrderedJson& list) {
  return list.is_array() && !list.empty() &&
         std::all_of(list.begin(), list.end(),
                     [](const auto& id) { return id.is_number_integer(); });
}

/// A text, which is continued as it is, or ids. A list of one such prompt is that prompt.
std::vector<int64_t> read_text_prompt(Fields& fields, const Served& served) {
  const OrderedJson* value = fields.find("prompt");
  if (value == nullptr) throw ApiError({.param = "prompt"}, "prompt: expected a text, got none");
  const bool listed = value->is_array() && value->size() == 1 && !is_ids(*value);
  const OrderedJson& prompt = listed ? (*value)[0] : *value;
  std::vector<int64_t> ids;
  if (prompt.is_string()) {
    ids = served.tokenizer->encode(prompt.get_ref<const std::string&>());
  } else if (is_ids(prompt)) {
    for (const OrderedJson& id : prompt) {
      const bool known = id >= 0 && id < served.vocab_size;
      if (!known) refuse_field("prompt", fmt::format("ids in [0, {})", served.vocab_size), id);
      ids.push_back(id.get<int64_t>());
    }
  } else {
    refuse_field("prompt", "one text or one list of ids", *value);
  }
  if (ids.empty()) throw ApiError({.param = "prompt"}, "prompt: expected at least one token");
  return ids;
}

void read_chat(Fields& fields, const Served& served, decode::Request& request) {
  request.prompt = read_chat_prompt(fields, served);
  read_chat_log_probs(fields, request);
  fields.expect_neutral("response_format", {OrderedJson::object({{"type", "text"}})});
  fields.expect_neutral("modalities", {OrderedJson::array({"text"})});
}

void read_completion(Fields& fields, const Served& served, decode::Request& request) {
  request.prompt = read_text_prompt(fields, served);
  request.num_top_log_probs = fields.integer("logprobs", 0, kMaxCompletionLogProbs);
  fields.expect_neutral("echo", {false});
  fields.expect_neutral("suffix", {""});
  fields.expect_neutral("best_of", {1});
}

void check_length(const Query& query, const Served& served) {
  const auto length = static_cast<int64_t>(query.request.prompt.size());
  if (length <= served.max_positions) return;
  const std::string field = query.endpoint == Endpoint::kChat ? "messages" : "prompt";
  throw ApiError({.code = "context_length_exceeded", .param = field},
                 fmt::format("{}: expected at most {} tokens (the model's context), got {}", field,
                             served.max_positions, length));
}

}  // namespace

void add_thinking(Served& served) {
  if (!served.chat.knows_thinking()) return;
  const auto with = [&](bool on) {
    text::ChatOptions options;
    options.enable_thinking = on;
    return text::ChatTemplate::for_tokenizer(*served.tokenizer, options);
  };
  served.no_thinking = with(false);
  served.thinking = with(true);
}

Query parse_query(Endpoint endpoint, std::string_view body, const Served& served) {
  const OrderedJson object = parse_body(body);
  Fields fields(object);
  check_model(fields, served);
  Query query{.endpoint = endpoint};
  query.request.sampling = read_sampling(fields, served);
  query.request.max_new_tokens = read_budget(fields, endpoint, served);
  query.request.stop_ids = served.tokenizer->stop_ids();
  query.stops = read_stops(fields);
  read_streaming(fields, query);
  fields.expect_neutral("n", {1});
  fields.expect_neutral("presence_penalty", {0});
  fields.expect_neutral("frequency_penalty", {0});
  fields.expect_neutral("repetition_penalty", {1});
  fields.expect_neutral("min_p", {0});
  fields.expect_neutral("logit_bias", {OrderedJson::object()});
  fields.expect_neutral("store", {false});
  fields.expect_neutral("service_tier", {"auto", "default"});
  fields.ignore({"user", "metadata", "safety_identifier", "prompt_cache_key"});
  if (endpoint == Endpoint::kChat) {
    read_chat(fields, served, query.request);
  } else {
    read_completion(fields, served, query.request);
  }
  fields.expect_all_read();
  check_length(query, served);
  return query;
}

}  // namespace dflash::serve
