#include "serve/reply.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace dflash::serve {
namespace {

/// Kept finite: JSON has no infinity, and OpenAI says this for "as good as never".
constexpr double kLeastLogProb = -9999.0;

std::string fresh_id() {
  static thread_local std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

const char* finish_reason(Ending ending) {
  return ending == Ending::kStop ? "stop" : "length";
}

}  // namespace

Json acceptance_json(const AcceptanceCounts& counts) {
  return {{"passes", counts.passes()},
          {"tau", counts.tau()},
          {"proposed", counts.proposed()},
          {"accepted", counts.accepted()}};
}

std::string text_of(const Update& update) {
  std::string text;
  for (const Piece& piece : update.pieces) text += piece.text;
  return text;
}

Reply::Reply(const Query& query, const Served& served)
    : query_(query),
      served_(served),
      id_((is_chat() ? "chatcmpl-" : "cmpl-") + fresh_id()),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

Json Reply::envelope(bool streamed) const {
  const char* object = !is_chat() ? "text_completion"
                       : streamed ? "chat.completion.chunk"
                                  : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", served_.name},
          {"choices", Json::array()}};
}

Json Reply::choice(bool streamed, const std::string& text) const {
  Json choice = {{"index", 0}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (!is_chat()) {
    choice["text"] = text;
  } else if (streamed) {
    choice["delta"] = text.empty() ? Json::object() : Json({{"content", text}});
  } else {
    choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  }
  return choice;
}

Json Reply::whole(const Update& all) const {
  Json reply = envelope(/*streamed=*/false);
  Json one = choice(/*streamed=*/false, text_of(all));
  one["finish_reason"] = finish_reason(all.ending);
  one["logprobs"] = log_probs(all);
  reply["choices"].push_back(std::move(one));
  reply["usage"] = usage(all);
  reply["acceptance"] = acceptance_json(all.counts);
  return reply;
}

Json Reply::first_chunk() const {
  if (!is_chat()) return nullptr;
  Json reply = envelope(/*streamed=*/true);
  Json one = choice(/*streamed=*/true, "");
  one["delta"] = {{"role", "assistant"}, {"content", ""}};
  reply["choices"].push_back(std::move(one));
  return reply;
}

Json Reply::chunk(const Update& update) const {
  if (update.pieces.empty() && update.scored.empty()) return nullptr;
  Json reply = envelope(/*streamed=*/true);
  Json one = choice(/*streamed=*/true, text_of(update));
  one["logprobs"] = log_probs(update);
  reply["choices"].push_back(std::move(one));
  if (!query_.include_acceptance) return reply;
  Json pieces = Json::array();
  for (const Piece& piece : update.pieces) pieces.push_back({piece.text, piece.drafted});
  reply["acceptance"] = acceptance_json(update.counts);
  reply["acceptance"]["tokens"] = update.num_tokens;
  reply["acceptance"]["pieces"] = std::move(pieces);
  return reply;
}

Json Reply::last_chunk(const Update& update) const {
  Json reply = envelope(/*streamed=*/true);
  Json one = choice(/*streamed=*/true, "");
  one["finish_reason"] = finish_reason(update.ending);
  reply["choices"].push_back(std::move(one));
  reply["acceptance"] = acceptance_json(update.counts);
  return reply;
}

Json Reply::usage_chunk(const Update& update) const {
  Json reply = envelope(/*streamed=*/true);
  reply["usage"] = usage(update);
  return reply;
}

Json Reply::usage(const Update& update) const {
  const auto prompt = static_cast<int64_t>(query_.request.prompt.size());
  return {{"prompt_tokens", prompt},
          {"completion_tokens", update.num_tokens},
          {"total_tokens", prompt + update.num_tokens},
          {"prompt_tokens_details", {{"cached_tokens", update.reused_tokens}}}};
}

Json Reply::scored_token(int64_t id, double log_prob) const {
  const std::string bytes = served_.tokenizer->token_bytes(id);
  return {{"token", served_.tokenizer->decode({id})},
          {"logprob", std::max(log_prob, kLeastLogProb)},
          {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
}

/// Two forms: the chat's has a token an entry, the older one parallel lists.
Json Reply::log_probs(const Update& update) const {
  if (!query_.request.num_top_log_probs) return nullptr;
  Json content = Json::array();
  Json lists = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()}};
  for (const ScoredToken& scored : update.scored) {
    Json entry = scored_token(scored.id, scored.log_probs.log_prob);
    Json list = Json::array(), map = Json::object();
    for (const auto& [id, log_prob] : scored.log_probs.top) {
      list.push_back(scored_token(id, log_prob));
      map.emplace(list.back()["token"], list.back()["logprob"]);  // of equal texts the likeliest
    }
    lists["tokens"].push_back(entry["token"]);
    lists["token_logprobs"].push_back(entry["logprob"]);
    lists["top_logprobs"].push_back(std::move(map));
    entry["top_logprobs"] = std::move(list);
    content.push_back(std::move(entry));
  }
  if (!is_chat()) return lists;
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace dflash::serve
