// SV-09: every field that is taken has an effect, every other one is refused by name.
#include "serve/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/templates.h"
#include "serve/world.h"

namespace dflash::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

target::TargetConfig config() {
  target::TargetConfig config;
  config.vocab_size = kLetters;
  config.max_positions = 400;
  return config;
}

Served served(const std::string& chat_template = {}) {
  return letters_served(std::make_shared<LetterTokenizer>(chat_template), config());
}

Query parse(const Json& body, Endpoint endpoint = Endpoint::kChat, const Served& with = served()) {
  return parse_query(endpoint, body.dump(), with);
}

std::string prompt_text(const Query& query) {
  return LetterTokenizer().decode(query.request.prompt, false);
}

Json with(Json body, const std::string& field, Json value) {
  body[field] = std::move(value);
  return body;
}

/// The error of a chat body, as its client gets it.
Json refusal(const std::string& body, Endpoint endpoint = Endpoint::kChat,
             const Served& with = served()) {
  try {
    parse_query(endpoint, body, with);
  } catch (const ApiError& error) {
    Json out = error.to_json().at("error");
    out["status"] = error.status();
    return out;
  }
  ADD_FAILURE() << "taken: " << body;
  return {{"message", ""}, {"param", ""}, {"status", 0}};
}

TEST(Api, EveryFieldHasItsEffect) {
  Json body = chat("hi");
  body.update({{"model", "letters"},
               {"temperature", 0.5},
               {"top_p", 0.25},
               {"top_k", 7},
               {"seed", -3},
               {"max_tokens", 11},
               {"stop", {"x", "yz"}},
               {"stream", true},
               {"stream_options", {{"include_usage", true}, {"include_acceptance", true}}},
               {"logprobs", true},
               {"top_logprobs", 4},
               {"user", "me"},
               {"metadata", {{"a", 1}}},
               {"n", 1},
               {"presence_penalty", 0.0},
               {"store", false},
               {"response_format", {{"type", "text"}}},
               {"logit_bias", nullptr}});
  const Query query = parse(body);
  EXPECT_EQ(prompt_text(query), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(query.request.sampling.temperature, 0.5);
  EXPECT_EQ(query.request.sampling.top_p, 0.25);
  EXPECT_EQ(query.request.sampling.top_k, 7);
  EXPECT_EQ(query.request.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(query.request.max_new_tokens, 11);
  EXPECT_THAT(query.request.stop_ids, ElementsAre(kEnd));
  EXPECT_EQ(query.request.num_top_log_probs, 4);
  EXPECT_THAT(query.stops, ElementsAre("x", "yz"));
  EXPECT_TRUE(query.stream && query.include_usage && query.include_acceptance);
  EXPECT_EQ(parse(with(chat("a"), "max_completion_tokens", 5)).request.max_new_tokens, 5);
  EXPECT_EQ(parse(with(chat("a"), "logprobs", true)).request.num_top_log_probs, 0);
  EXPECT_THAT(parse(with(chat("a"), "stop", "q")).stops, ElementsAre("q"));
}

TEST(Api, DefaultsAreTheServers) {
  Served defaults = served();
  defaults.sampling = {.temperature = 0.75, .top_k = 5, .top_p = 0.5, .seed = 9};
  defaults.max_new_tokens = 33;
  const Json body = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  const Query query = parse(body, Endpoint::kChat, defaults);
  EXPECT_EQ(query.request.sampling.temperature, 0.75);
  EXPECT_EQ(query.request.sampling.top_k, 5);
  EXPECT_EQ(query.request.sampling.top_p, 0.5);
  EXPECT_EQ(query.request.max_new_tokens, 33);
  EXPECT_EQ(query.request.num_top_log_probs, std::nullopt);
  EXPECT_FALSE(query.stream || query.include_usage || query.include_acceptance);
  const Query other = parse(body, Endpoint::kChat, defaults);
  EXPECT_NE(query.request.sampling.seed, other.request.sampling.seed);  // 1 in 2^64
  defaults.has_seed = true;
  EXPECT_EQ(parse(body, Endpoint::kChat, defaults).request.sampling.seed, 9u);
}

TEST(Api, Completions) {
  const auto prompt = [](const Json& prompt) {
    return parse({{"prompt", prompt}}, Endpoint::kCompletion).request.prompt;
  };
  const std::vector<int64_t> abc = LetterTokenizer().encode("abc", text::Specials::kParse);
  EXPECT_EQ(prompt("abc"), abc);
  EXPECT_EQ(prompt({"abc"}), abc);
  EXPECT_EQ(prompt(abc), abc);
  EXPECT_EQ(prompt({abc}), abc);
  EXPECT_EQ(
      parse({{"prompt", "a"}, {"logprobs", 3}}, Endpoint::kCompletion).request.num_top_log_probs,
      3);
}

TEST(Api, ConversationsReachThePrompt) {
  Json body = {{"messages",
                {{{"role", "system"}, {"content", "s"}},
                 {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "q"}}}}},
                 {{"role", "assistant"}, {"content", "a"}, {"refusal", nullptr}},
                 {{"role", "user"}, {"content", "b"}},
                 {{"role", "user"}, {"content", "c"}}}}};
  EXPECT_EQ(prompt_text(parse(body)),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Api, ToolsAreShownOrRefused) {
  Json body = chat("q");
  body["tools"] = {{{"type", "function"},
                    {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}}};
  EXPECT_THAT(prompt_text(parse(body, Endpoint::kChat, served(agent_template()))),
              HasSubstr("weather"));
  const Json error = refusal(body.dump());  // the plain template shows none
  EXPECT_EQ(error.at("status"), 400);
  EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("tools"));
}

TEST(Api, ThinkingIsSwitchedByTheRequest) {
  const Served model = served(kThinkingTemplate);
  const auto prompt = [&](const Json& arguments) {
    return prompt_text(
        parse(with(chat("q"), "chat_template_kwargs", arguments), Endpoint::kChat, model));
  };
  EXPECT_THAT(prompt({{"enable_thinking", false}}), ::testing::EndsWith("assistant\n()"));
  EXPECT_THAT(prompt({{"enable_thinking", true}}), ::testing::EndsWith("assistant\n"));
  EXPECT_THAT(prompt(Json::object()), ::testing::EndsWith("assistant\n"));
  const Json error =
      refusal(with(chat("q"), "chat_template_kwargs", {{"enable_thinking", true}}).dump());
  EXPECT_EQ(error.at("param"), "chat_template_kwargs.enable_thinking");
}

struct Refused {
  const char *field, *value, *param;  // param: as the error names it; empty: none
};

const std::vector<Refused> kRefused = {
    {"temperature", "-0.1", "temperature"},
    {"temperature", "\"hot\"", "temperature"},
    {"temperature", "1e400", ""},
    {"top_p", "0", "top_p"},
    {"top_p", "1.5", "top_p"},
    {"top_k", "-2", "top_k"},
    {"top_k", "1.5", "top_k"},
    {"seed", "1.5", "seed"},
    {"seed", "18446744073709551615", "seed"},
    {"max_tokens", "0", "max_tokens"},
    {"max_tokens", "true", "max_tokens"},
    {"stop", "[\"\"]", "stop"},
    {"stop", "[1]", "stop"},
    {"stop", "5", "stop"},
    {"stop", "[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8]", "stop"},
    {"stream", "1", "stream"},
    {"stream_options", "{\"include_usage\": true}", "stream_options"},
    {"logprobs", "3", "logprobs"},
    {"top_logprobs", "3", "top_logprobs"},
    {"n", "2", "n"},
    {"presence_penalty", "0.5", "presence_penalty"},
    {"frequency_penalty", "-1", "frequency_penalty"},
    {"min_p", "0.1", "min_p"},
    {"logit_bias", "{\"5\": 1}", "logit_bias"},
    {"response_format", "{\"type\": \"json_object\"}", "response_format"},
    {"store", "true", "store"},
    {"tool_choice", "\"required\"", "tool_choice"},
    {"tools", "5", "tools"},
    {"model", "\"gpt\"", "model"},
    {"model", "7", "model"},
    {"prompt", "\"a\"", "prompt"},
    {"temprature", "1", "temprature"},
    {"chat_template_kwargs", "{\"date\": 1}", "chat_template_kwargs.date"},
    {"messages", "[]", "messages"},
    {"messages", "[{\"role\": \"user\"}]", "messages[0]"},
    {"messages", "[{\"role\": \"king\", \"content\": \"a\"}]", "messages[0]"},
    {"messages", "[{\"role\": \"user\", \"content\": \"a\", \"x\": 1}]", "messages[0].x"},
    {"messages", "[{\"role\": \"user\", \"content\": \"a\", \"name\": 1}]", "messages[0].name"},
    {"messages",
     "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
     "\"b\"}]",
     "messages"},
    {"messages",
     "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": "
     "{\"url\": \"x\"}}]}]",
     "messages[0]"}};

TEST(Api, WhatIsNotUnderstoodIsRefusedByName) {
  for (const Refused& c : kRefused) {
    Json body = chat("a");
    body.erase(c.field);
    std::string text = body.dump();
    text.insert(text.size() - 1, fmt::format(", \"{}\": {}", c.field, c.value));
    const Json error = refusal(text);
    const std::string message = error.at("message");
    EXPECT_EQ(error.at("status"), std::string(c.value) == "\"gpt\"" ? 404 : 400) << text;
    EXPECT_EQ(error.at("param"), *c.param ? Json(c.param) : Json()) << message;
    EXPECT_EQ(message.find(c.param), 0u) << message;
  }
  EXPECT_THAT(refusal(with(chat("a"), "temprature", 1).dump()).at("message").get<std::string>(),
              HasSubstr("did you mean temperature?"));
}

TEST(Api, BodiesThatAreNoRequest) {
  for (const char* body : {"", "{", "[]", "5", "{}", "{\"messages\": 5}", "{\"a\": 1, \"a\": 2}",
                           "{\"messages\": [5]}", "\xff\xfe"}) {
    EXPECT_EQ(refusal(body).at("status"), 400) << body;
  }
  std::string deep(100000, '[');
  EXPECT_EQ(refusal(deep).at("status"), 400);
  for (const char* body :
       {"{}", "{\"prompt\": \"\"}", "{\"prompt\": []}", "{\"prompt\": [96]}", "{\"prompt\": [-1]}",
        "{\"prompt\": [\"a\", \"b\"]}", "{\"prompt\": [1.5]}",
        "{\"prompt\": \"a\", \"echo\": true}", "{\"prompt\": \"a\", \"best_of\": 2}",
        "{\"prompt\": \"a\", \"max_completion_tokens\": 2}",
        "{\"prompt\": \"a\", \"logprobs\": true}"}) {
    EXPECT_EQ(refusal(body, Endpoint::kCompletion).at("status"), 400) << body;
  }
}

TEST(Api, PromptsBeyondTheContext) {
  EXPECT_EQ(parse({{"prompt", std::string(400, 'a')}}, Endpoint::kCompletion).request.prompt.size(),
            400u);
  const Json error =
      refusal(Json({{"prompt", std::string(401, 'a')}}).dump(), Endpoint::kCompletion);
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("400 tokens"));
  EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("401"));
}

}  // namespace
}  // namespace dflash::serve
