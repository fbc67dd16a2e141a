// What the tests of serve share: a tokenizer with a letter a token, a service over a small target
// on a free port, and a client that speaks to it.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "decode/fake_target.h"
#include "serve/server.h"

namespace dflash::serve {

inline constexpr int64_t kLetters = 96, kEnd = 1;

/// 0 <|im_start|>, 1 <|im_end|> (the end), 2 and 3 the halves of an emoji, from 4 on a letter each.
/// Others are written as '?'.
class LetterTokenizer : public text::Tokenizer {
 public:
  explicit LetterTokenizer(std::string chat_template = {}) {
    if (!chat_template.empty()) template_ = std::move(chat_template);
  }

  std::vector<int64_t> encode(std::string_view text, text::Specials specials) const override {
    return encode_with_offsets(text, specials).ids;
  }
  text::EncodedText encode_with_offsets(std::string_view text, text::Specials) const override {
    text::EncodedText out;
    for (size_t at = 0; at < text.size();) {
      int64_t id = -1;
      for (int64_t marker = 0; marker < 4; ++marker) {
        if (text.substr(at).starts_with(token_bytes(marker))) id = marker;
      }
      if (id < 0) id = letter(text[at]);
      out.ids.push_back(id);
      out.begins.push_back(static_cast<int64_t>(at));
      at += token_bytes(id).size();
    }
    return out;
  }
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const override {
    text::StreamDecoder decoder(*this, skip_special);
    std::string text;
    for (const int64_t id : ids) text += decoder.push(id);
    return text + decoder.flush();
  }
  std::string token_bytes(int64_t id) const override {
    static const std::vector<std::string> first = {"<|im_start|>", "<|im_end|>", "\xF0\x9F",
                                                   "\x98\x80"};
    if (id < 4) return first[id];
    return id < 4 + static_cast<int64_t>(kText.size()) ? std::string(1, kText[id - 4]) : "";
  }
  std::optional<int64_t> token_to_id(std::string_view) const override { return std::nullopt; }
  bool is_special(int64_t id) const override { return id < 2; }
  int64_t size() const override { return kLetters; }
  const std::vector<int64_t>& stop_ids() const override { return stops_; }
  std::optional<int64_t> bos_id() const override { return std::nullopt; }
  const std::string& chat_template() const override { return template_; }
  std::string fingerprint() const override { return "letters"; }

  static int64_t letter(char c) {
    const size_t at = kText.find(c);
    return 4 + static_cast<int64_t>(at == std::string_view::npos ? kText.find('?') : at);
  }

 private:
  static constexpr std::string_view kText =
      "\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?-+*/=_()[]{}<>|'\"";
  std::vector<int64_t> stops_ = {kEnd};
  std::string template_ =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}";
};

/// Shows the thinking switch in the opened answer.
inline const char* const kThinkingTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '()' }}{% endif %}";

inline Served letters_served(std::shared_ptr<const text::Tokenizer> tokenizer,
                             const target::TargetConfig& config) {
  Served served{.name = "letters",
                .tokenizer = tokenizer,
                .chat = text::ChatTemplate::for_tokenizer(*tokenizer)};
  add_thinking(served);
  served.max_positions = config.max_positions;
  served.vocab_size = config.vocab_size;
  served.sampling.temperature = 0;
  return served;
}

/// Greedy text by the letters before: `next(text so far)` is the next letter, 0 the end.
inline fake::HiddenFunction spoken(std::function<char(std::string_view text)> next) {
  return fake::scripted([next = std::move(next)](std::span<const int64_t> history) {
    const LetterTokenizer tokenizer;
    std::string text;
    for (const int64_t id : history) text += tokenizer.token_bytes(id);
    const char letter = next(text);
    return letter == 0 ? kEnd : LetterTokenizer::letter(letter);
  });
}

/// Answers each question with the text that the map has for it: "user\nQUESTION".
inline fake::HiddenFunction answers(std::map<std::string, std::string> texts) {
  return spoken([texts = std::move(texts)](std::string_view text) -> char {
    const std::string opening = "assistant\n";
    if (text.find(opening) == std::string_view::npos) return 'x';  // a row of the prompt
    const size_t begin = text.rfind(opening) + opening.size();
    const std::string_view before = text.substr(0, text.rfind("<|im_end|>"));
    const std::string question(before.substr(before.rfind("user\n") + 5));
    const auto found = texts.find(question);
    const std::string answer = found == texts.end() ? "what?" : found->second;
    const size_t said = text.size() - begin;
    return said < answer.size() ? answer[said] : char{0};
  });
}

/// Says 'a' for ever to "long", and "b" after that to anything else.
inline fake::HiddenFunction talkative() {
  return spoken([](std::string_view text) -> char {
    const std::string_view said = text.substr(text.rfind("assistant\n") + 10);
    if (text.find("long") != std::string_view::npos) return 'a';
    return said.size() < 40 ? "bcd"[said.size() % 3] : char{0};
  });
}

/// A service on a thread of its own, until it goes out of scope.
class Service {
 public:
  Service(const target::Target& target, decode::Proposer* proposer = nullptr,
          ServerOptions options = {},
          std::shared_ptr<const text::Tokenizer> tokenizer = std::make_shared<LetterTokenizer>())
      : server_(letters_served(tokenizer, target.config()), target, proposer, options),
        engine_([this] { server_.run([this] { return closing_.load(); }); }) {
    set_log_level(2);
  }
  ~Service() { close(); }

  void close() {
    closing_ = true;
    if (engine_.joinable()) engine_.join();
  }
  /// As a signal does: no wait for the end.
  void ask_to_close() { closing_ = true; }
  SchedulerStatus status() const { return server_.scheduler().status(); }
  std::string url() const { return server_.url(); }

  httplib::Client client() const {
    httplib::Client client(server_.url());
    client.set_read_timeout(3600);
    return client;
  }
  /// Status and body of a POST.
  std::pair<int, Json> post(const std::string& path, const Json& body) const {
    return post_text(path, body.dump());
  }
  std::pair<int, Json> post_text(const std::string& path, const std::string& body) const {
    const auto result = client().Post(path, body, "application/json");
    if (!result) return {0, Json(httplib::to_string(result.error()))};
    return {result->status, Json::parse(result->body)};
  }
  std::pair<int, Json> get(const std::string& path) const {
    const auto result = client().Get(path);
    if (!result) return {0, Json(httplib::to_string(result.error()))};
    return {result->status, Json::parse(result->body)};
  }
  /// The events of a stream, "[DONE]" as a text. `on_bytes` false: the client leaves.
  std::vector<Json> stream(
      const std::string& path, Json body,
      std::function<bool()> on_bytes = [] { return true; }) const {
    body["stream"] = true;
    httplib::Request request;
    request.method = "POST";
    request.path = path;
    request.body = body.dump();
    request.set_header("Content-Type", "application/json");
    std::string text;
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      text.append(data, size);
      return on_bytes();
    };
    client().send(request);
    return events_of(text);
  }

  static std::vector<Json> events_of(const std::string& text) {
    std::vector<Json> events;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find("\n\n", at);
      const std::string line = text.substr(at, end - at);
      EXPECT_EQ(line.find("data: "), 0u) << line;
      const std::string data = line.substr(6);
      events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data, nullptr, false));
      at = end == std::string::npos ? text.size() : end + 2;
    }
    return events;
  }

 private:
  Server server_;
  std::atomic<bool> closing_ = false;
  std::thread engine_;
};

inline Json chat(const std::string& question) {
  return {{"messages", {{{"role", "user"}, {"content", question}}}}, {"temperature", 0}};
}

inline std::string content_of(const Json& reply) {
  return reply.at("choices").at(0).at("message").at("content");
}

}  // namespace dflash::serve
