// The service over HTTP: OpenAI's forms, streams, refusals, clients that leave, the shutdown.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "base/error.h"
#include "decode/proposers.h"
#include "decode/test_proposers.h"
#include "serve/world.h"

namespace dflash::serve {
namespace {

using ::testing::HasSubstr;

const std::string kChat = "/v1/chat/completions", kText = "/v1/completions";

class ServerTest : public ::testing::Test {
 protected:
  fake::FakeTarget target_{{.vocab = kLetters},
                           answers({{"hi", "hello there"}, {"one", "first"}, {"two", "second"}})};
  std::unique_ptr<decode::Proposer> lookup_ = decode::make_lookup_proposer();
};

std::string streamed_text(const std::vector<Json>& events) {
  std::string text;
  for (const Json& event : events) {
    if (!event.is_object() || event.at("choices").empty()) continue;
    const Json& choice = event["choices"][0];
    text +=
        choice.contains("delta") ? choice["delta"].value("content", "") : choice.value("text", "");
  }
  return text;
}

TEST_F(ServerTest, ChatAsAWhole) {
  Service service(target_, lookup_.get());
  const auto [status, reply] = service.post(kChat, chat("hi"));
  ASSERT_EQ(status, 200) << reply;
  EXPECT_EQ(reply.at("object"), "chat.completion");
  EXPECT_EQ(reply.at("model"), "letters");
  EXPECT_EQ(content_of(reply), "hello there");
  EXPECT_EQ(reply["choices"][0].at("finish_reason"), "stop");
  EXPECT_EQ(reply.at("usage").at("completion_tokens"), 12);  // 11 letters and the end
  const int64_t prompt = reply["usage"].at("prompt_tokens");
  EXPECT_EQ(reply["usage"].at("total_tokens"), prompt + 12);
  EXPECT_EQ(reply["usage"].at("prompt_tokens_details").at("cached_tokens"), 0);
  const Json& acceptance = reply.at("acceptance");
  EXPECT_GT(acceptance.at("passes"), 0);
  EXPECT_DOUBLE_EQ(acceptance.at("tau").get<double>() * acceptance.at("passes").get<double>(), 11);
}

TEST_F(ServerTest, ChatAsAStream) {
  Service service(target_, lookup_.get());
  Json body = chat("hi");
  body["stream_options"] = {{"include_usage", true}};
  const std::vector<Json> events = service.stream(kChat, body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.front()["choices"][0]["delta"].at("role"), "assistant");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(streamed_text(events), "hello there");
  const Json& usage = events[events.size() - 2];
  EXPECT_TRUE(usage.at("choices").empty());
  EXPECT_EQ(usage.at("usage").at("completion_tokens"), 12);
  const Json& last = events[events.size() - 3];
  EXPECT_EQ(last["choices"][0].at("finish_reason"), "stop");
  EXPECT_GE(last.at("acceptance").at("tau"), 1.0);
  for (const Json& event : events) {
    if (!event.is_object()) continue;
    EXPECT_EQ(event.at("id"), events[0].at("id"));
    EXPECT_EQ(event.at("object"), "chat.completion.chunk");
  }
  for (const Json& event : service.stream(kChat, chat("hi"))) {
    EXPECT_FALSE(event.is_object() && event.contains("usage"));  // unasked
  }
}

TEST_F(ServerTest, AcceptanceInEveryChunkWhereAsked) {
  Service service(target_, lookup_.get());
  Json body = chat("hi");
  body["stream_options"] = {{"include_acceptance", true}};
  std::string text;
  int64_t tokens = 0;
  for (const Json& event : service.stream(kChat, body)) {
    if (!event.is_object() || !event.contains("acceptance")) continue;
    const Json& acceptance = event["acceptance"];
    if (!acceptance.contains("pieces")) continue;
    for (const Json& piece : acceptance["pieces"]) text += piece.at(0);
    EXPECT_GT(acceptance.at("tokens"), tokens);
    tokens = acceptance.at("tokens");
  }
  EXPECT_EQ(text, "hello there");
}

TEST_F(ServerTest, TextsAreContinuedAsTheyAre) {
  const fake::FakeTarget counting({.vocab = kLetters}, spoken([](std::string_view text) {
                                    return static_cast<char>(text.back() + 1);
                                  }));
  Service service(counting);
  Json body = {{"prompt", "xab"}, {"max_tokens", 6}, {"logprobs", 2}};
  const auto [status, reply] = service.post(kText, body);
  ASSERT_EQ(status, 200) << reply;
  EXPECT_EQ(reply.at("object"), "text_completion");
  const Json& choice = reply["choices"][0];
  EXPECT_EQ(choice.at("text"), "cdefgh");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("logprobs").at("tokens"), Json({"c", "d", "e", "f", "g", "h"}));
  EXPECT_EQ(choice["logprobs"].at("top_logprobs").at(0).size(), 2u);
  EXPECT_NEAR(choice["logprobs"].at("token_logprobs").at(0).get<double>(), 0, 1e-6);
  body["stop"] = Json::array({"zz", "fg"});
  EXPECT_EQ(service.post(kText, body).second["choices"][0].at("text"), "cde");
  EXPECT_EQ(streamed_text(service.stream(kText, body)), "cde");
}

TEST_F(ServerTest, ChatLogProbs) {
  Service service(target_, lookup_.get());
  Json body = chat("hi");
  body.update({{"logprobs", true}, {"top_logprobs", 3}});
  const auto [status, reply] = service.post(kChat, body);
  ASSERT_EQ(status, 200) << reply;
  const Json& content = reply["choices"][0].at("logprobs").at("content");
  std::string text;
  for (const Json& entry : content) {
    text += entry.at("token");
    EXPECT_EQ(entry.at("top_logprobs").size(), 3u);
    EXPECT_EQ(entry["top_logprobs"][0].at("token"), entry.at("token"));
    EXPECT_EQ(entry.at("bytes").size(), 1u);
  }
  EXPECT_EQ(text, "hello there");
  size_t streamed = 0;
  for (const Json& event : service.stream(kChat, body)) {
    if (!event.is_object() || event["choices"][0]["logprobs"].is_null()) continue;
    streamed += event["choices"][0]["logprobs"].at("content").size();
  }
  EXPECT_EQ(streamed, content.size());
}

TEST_F(ServerTest, TheSecondTurnReusesTheFirst) {  // R-SV-5 as a client sees it
  Service service(target_, lookup_.get(), {.scheduler = {.num_slots = 1}});
  const Json first = service.post(kChat, chat("one")).second;
  Json body = chat("one");
  body["messages"].push_back({{"role", "assistant"}, {"content", content_of(first)}});
  body["messages"].push_back({{"role", "user"}, {"content", "two"}});
  const Json second = service.post(kChat, body).second;
  EXPECT_EQ(content_of(second), "second");
  const int64_t reused = second["usage"]["prompt_tokens_details"].at("cached_tokens");
  EXPECT_GE(reused, first["usage"].at("prompt_tokens").get<int64_t>());

  Service cold(target_, lookup_.get());
  const Json expected = cold.post(kChat, body).second;
  EXPECT_EQ(content_of(expected), "second");
  EXPECT_EQ(second.at("acceptance"), expected.at("acceptance"));
}

TEST_F(ServerTest, ModelsHealthAndThePage) {
  Service service(target_, nullptr, {.drafter = "none"});
  EXPECT_EQ(service.get("/v1/models").second.at("data").at(0).at("id"), "letters");
  service.post(kChat, chat("hi"));
  const Json health = service.get("/health").second;
  EXPECT_EQ(health.at("status"), "ok");
  EXPECT_EQ(health.at("slots"), 4);
  EXPECT_EQ(health.at("running"), 0);
  EXPECT_EQ(health.at("requests").at("finished"), 1);
  EXPECT_EQ(health.at("acceptance").at("tau"), 1.0);
  const auto page = service.client().Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->get_header_value("Content-Type"), HasSubstr("text/html"));
  EXPECT_THAT(page->body, HasSubstr(kChat));
  EXPECT_THAT(page->body, ::testing::EndsWith("</html>\n"));
  EXPECT_THAT(page->body, ::testing::Not(HasSubstr("src=\"http")));  // no foreign script
}

TEST_F(ServerTest, RefusalsHaveOpenAisForm) {
  Service service(target_);
  const auto expect = [](const std::pair<int, Json>& got, int status, const std::string& text) {
    EXPECT_EQ(got.first, status) << got.second;
    EXPECT_THAT(got.second.at("error").at("message").get<std::string>(), HasSubstr(text));
    EXPECT_TRUE(got.second["error"].contains("type"));
  };
  expect(service.get("/v1/none"), 404, "/v1/none");
  expect(service.post("/v1/none", {{"a", 1}}), 404, "/v1/none");
  expect(service.get(kChat), 405, "POST");
  expect(service.post("/health", Json::object()), 405, "GET");
  expect(service.post_text(kChat, "{\"messages\": "), 400, "JSON");
  expect(service.post(kChat, {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"n", 3}}), 400,
         "n: expected 1");
  EXPECT_EQ(service.client().Delete(kChat)->status, 405);
  const auto multipart =
      service.client().Post(kChat, httplib::MultipartFormDataItems{{"a", "b", "", "text/plain"}});
  ASSERT_TRUE(multipart);
  EXPECT_EQ(multipart->status, 415);
  // The connection of a refused request serves the next one, or is closed; never confused.
  httplib::Client client = service.client();
  client.set_keep_alive(true);
  for (const std::string& path : {std::string("/v1/none"), kChat, std::string("/health")}) {
    const auto refused = client.Post(path, "{\"messages\": 5}", "application/json");
    ASSERT_TRUE(refused) << path;
    EXPECT_GE(refused->status, 400) << path;
    const auto good = client.Post(kChat, chat("hi").dump(), "application/json");
    ASSERT_TRUE(good) << path;
    EXPECT_EQ(good->status, 200) << path;
  }
}

TEST_F(ServerTest, BodiesAreBounded) {
  Service service(target_);
  const std::string large = "{\"prompt\": \"" + std::string(17 << 20, 'a') + "\"}";
  const auto whole = service.client().Post(kText, large, "application/json");
  EXPECT_TRUE(!whole || whole->status == 413);  // or the connection broke while it was sent
  // Chunked: no header tells how much comes.
  size_t sent = 0;
  const auto chunked = service.client().Post(
      kText,
      [&](size_t, httplib::DataSink& sink) {
        sink.write(large.data() + sent, std::min<size_t>(1 << 16, large.size() - sent));
        sent = std::min(large.size(), sent + (1 << 16));
        if (sent == large.size()) sink.done();
        return true;
      },
      "application/json");
  EXPECT_TRUE(!chunked || chunked->status == 413);
  EXPECT_EQ(service.post(kChat, chat("hi")).first, 200);
}

TEST_F(ServerTest, APortIsNeverShared) {
  Service service(target_);
  const std::string url = service.url();
  const int port = std::stoi(url.substr(url.rfind(':') + 1));
  EXPECT_THROW(Service(target_, nullptr, {.port = port}), Error);
}

TEST_F(ServerTest, AClientThatLeavesFreesItsSlot) {  // R-SV-4
  const fake::FakeTarget target({.vocab = kLetters, .max_positions = 1 << 20}, talkative());
  Service service(target, lookup_.get(), {.scheduler = {.num_slots = 2}});
  Json endless = chat("long");
  endless["max_tokens"] = 1 << 20;
  std::vector<Json> other;
  std::latch begun(1);
  std::thread second([&] {
    other = service.stream(kChat, chat("short"), [&] {
      begun.count_down(begun.try_wait() ? 0 : 1);
      return true;
    });
  });
  begun.wait();
  int pieces = 0;
  service.stream(kChat, endless, [&] { return ++pieces < 3; });
  while (service.get("/health").second.at("requests").at("cancelled") == 0) {
  }
  second.join();
  const std::string expected = content_of(service.post(kChat, chat("short")).second);
  EXPECT_EQ(expected.size(), 40u);
  EXPECT_EQ(streamed_text(other), expected);
  EXPECT_EQ(service.status().running, 0);
}

TEST_F(ServerTest, AClientThatLeavesBeforeAWholeAnswerIsNoticedToo) {
  const fake::FakeTarget target({.vocab = kLetters, .max_positions = 1 << 20}, talkative());
  Service service(target);
  Json endless = chat("long");
  endless["max_tokens"] = 1 << 20;
  httplib::Client client = service.client();
  std::thread waiting([&] { client.Post(kChat, endless.dump(), "application/json"); });
  while (service.get("/health").second.at("running") == 0) {
  }
  client.stop();
  while (service.get("/health").second.at("requests").at("cancelled") == 0) {
  }
  waiting.join();
  EXPECT_EQ(service.post(kChat, chat("short")).first, 200);
}

TEST_F(ServerTest, ShutdownRefusesTheNewAndFinishesTheOld) {  // R-SV-8, SV-06
  std::latch in_pass(1), go_on(1);
  const fake::FakeTarget target({.vocab = kLetters}, spoken([&](std::string_view text) -> char {
                                  if (text.ends_with("ab")) {
                                    in_pass.count_down(in_pass.try_wait() ? 0 : 1);
                                    go_on.wait();
                                  }
                                  const char last = text.back();
                                  return last == '\n' ? 'a' : last < 'f' ? last + 1 : char{0};
                                }));
  Service service(target, nullptr, {.scheduler = {.num_slots = 1}});
  std::vector<Json> running;
  std::pair<int, Json> waiting;
  std::thread first([&] { running = service.stream(kChat, chat("q")); });
  in_pass.wait();
  std::thread second([&] { waiting = service.post(kChat, chat("q")); });
  while (service.get("/health").second.at("waiting") == 0) {
  }
  service.ask_to_close();
  go_on.count_down();
  std::thread closing([&] { service.close(); });
  first.join();
  second.join();
  closing.join();
  EXPECT_EQ(streamed_text(running), "abcdef");
  EXPECT_EQ(running.back(), "[DONE]");
  EXPECT_EQ(waiting.first, 200);
  EXPECT_EQ(content_of(waiting.second), "abcdef");
  const auto [status, reply] = service.post(kChat, chat("q"));  // still there, and refuses
  EXPECT_EQ(status, 503);
  EXPECT_EQ(reply.at("error").at("code"), "shutting_down");
  EXPECT_EQ(service.get("/health").second.at("status"), "closing");
}

TEST_F(ServerTest, AFailedPassIsA500ForItsOwnClient) {
  const fake::FakeTarget target(
      {.vocab = kLetters}, spoken([](std::string_view text) -> char {
        if (text.ends_with("bad<|im_end|>\n<|im_start|>assistant\nx")) {
          throw std::runtime_error("broken");
        }
        return text.ends_with("xyz") ? char{0} : text.back() == '\n' ? 'x' : text.back() + 1;
      }));
  Service service(target);
  const auto [status, reply] = service.post(kChat, chat("bad"));
  EXPECT_EQ(status, 500);
  EXPECT_EQ(reply.at("error").at("message"), "broken");
  const std::vector<Json> events = service.stream(kChat, chat("bad"));
  EXPECT_EQ(events.back().at("error").at("message"), "broken");
  EXPECT_EQ(content_of(service.post(kChat, chat("good")).second), "xyz");
}

}  // namespace
}  // namespace dflash::serve
