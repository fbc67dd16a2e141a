#include "serve/server.h"

#include <chrono>

#include "serve/http.h"
#include "serve/page.h"
#include "serve/reply.h"

namespace dflash::serve {
namespace {

constexpr std::chrono::milliseconds kClientPoll(50);  // how soon a client that left is noticed
/// Connections beyond the requests that may be inside: idle ones, refusals, the page.
constexpr int64_t kSpareThreads = 32;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpReply json_reply(const Json& json, int status = 200) {
  return {.status = status, .body = dumped(json) + "\n"};
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply = json_reply(error.to_json(), error.status());
  if (error.status() == 429) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

HttpReply refusal(int status, const std::string& message) {
  const bool ours = status >= 500;
  return error_reply(
      {{.status = status, .type = ours ? "server_error" : "invalid_request_error"}, message});
}

HttpReply page_reply() {
  return {.content_type = "text/html; charset=utf-8",
          .body = std::string(chat_page()),
          .headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy",
                       "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
                       "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
                       "form-action 'none'; frame-ancestors 'none'"}}};
}

void append(Update& all, Update&& update) {
  update.pieces.insert(update.pieces.begin(), all.pieces.begin(), all.pieces.end());
  update.scored.insert(update.scored.begin(), all.scored.begin(), all.scored.end());
  all = std::move(update);
}

/// One request to a model: lives as long as the engine or the client need it.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Scheduler& scheduler, const Served& served, Query query)
      : scheduler_(scheduler),
        generation_(scheduler.submit(std::move(query))),
        reply_(generation_->query(), served) {}
  /// Without effect where it has ended.
  ~Exchange() { scheduler_.cancel(generation_); }

  HttpReply answer(const HttpClient& client) {
    return generation_->query().stream ? streamed(client) : whole(client);
  }

 private:
  /// The next news; nullopt: the client left.
  std::optional<Update> next(const HttpClient& client) {
    while (!client.left()) {
      if (auto update = generation_->wait(kClientPoll)) return update;
    }
    return std::nullopt;
  }

  HttpReply whole(const HttpClient& client) {
    Update all;
    while (all.ending == Ending::kNone) {
      auto update = next(client);
      if (!update) return refusal(499, "the client left");  // nobody reads it
      append(all, std::move(*update));
    }
    if (all.ending == Ending::kFailed) return refusal(500, all.error);
    return json_reply(reply_.whole(all));
  }

  HttpReply streamed(const HttpClient& client) {
    return {.content_type = "text/event-stream",
            .headers = {{"Cache-Control", "no-cache"}},
            .stream = [self = shared_from_this(), &client](const WritePiece& write) {
              return self->write_events(client, write);
            }};
  }

  bool write_events(const HttpClient& client, const WritePiece& write) {
    const auto send = [&](const Json& event) {
      return event.is_null() || write("data: " + dumped(event) + "\n\n");
    };
    if (!send(reply_.first_chunk())) return false;
    while (true) {
      const auto update = next(client);
      if (!update || !send(reply_.chunk(*update))) return false;
      if (update->ending == Ending::kNone) continue;
      if (update->ending == Ending::kFailed) {
        const ApiError error({.status = 500, .type = "server_error"}, update->error);
        return send(error.to_json());
      }
      if (!send(reply_.last_chunk(*update))) return false;
      if (generation_->query().include_usage && !send(reply_.usage_chunk(*update))) return false;
      return write("data: [DONE]\n\n");
    }
  }

  Scheduler& scheduler_;
  std::shared_ptr<Generation> generation_;
  Reply reply_;
};

}  // namespace

struct Server::Routes {
  Server& server;

  HttpReply generate(Endpoint endpoint, const HttpRequest& request) const {
    try {
      Query query = parse_query(endpoint, request.body, server.served_);
      const auto exchange =
          std::make_shared<Exchange>(server.scheduler_, server.served_, std::move(query));
      return exchange->answer(request.client);
    } catch (const ApiError& error) {
      return error_reply(error);
    }
  }

  HttpReply models() const {
    const Json model = {{"id", server.served_.name},
                        {"object", "model"},
                        {"created", 0},
                        {"owned_by", "dflash-cpp"},
                        {"max_model_len", server.served_.max_positions}};
    return json_reply({{"object", "list"}, {"data", Json::array({model})}});
  }

  HttpReply health() const {
    const SchedulerStatus status = server.scheduler_.status();
    Json acceptance = acceptance_json(status.counts);
    return json_reply({{"status", status.closing ? "closing" : "ok"},
                       {"model", server.served_.name},
                       {"drafter", server.options_.drafter},
                       {"slots", server.options_.scheduler.num_slots},
                       {"running", status.running},
                       {"waiting", status.waiting},
                       {"requests",
                        {{"finished", status.finished},
                         {"cancelled", status.cancelled},
                         {"failed", status.failed}}},
                       {"tokens",
                        {{"prompt", status.prompt_tokens},
                         {"reused", status.reused_tokens},
                         {"generated", status.tokens}}},
                       {"acceptance", std::move(acceptance)}});
  }

  std::vector<HttpRoute> all() const {
    const Routes self = *this;
    const auto get = [](const char* path, std::function<HttpReply()> reply) {
      return HttpRoute{"GET", path, [reply](const HttpRequest&) { return reply(); }};
    };
    const auto post = [self](const char* path, Endpoint endpoint) {
      return HttpRoute{"POST", path, [self, endpoint](const HttpRequest& request) {
                         return self.generate(endpoint, request);
                       }};
    };
    return {post("/v1/chat/completions", Endpoint::kChat),
            post("/v1/completions", Endpoint::kCompletion),
            get("/v1/models", [self] { return self.models(); }),
            get("/health", [self] { return self.health(); }), get("/", page_reply)};
  }
};

Server::Server(Served served, const target::Target& target, decode::Proposer* proposer,
               ServerOptions options)
    : served_(std::move(served)),
      options_(std::move(options)),
      scheduler_(target, proposer, *served_.tokenizer, options_.scheduler) {
  const SchedulerOptions& limits = options_.scheduler;
  http_ = std::make_unique<HttpServer>(
      HttpOptions{.host = options_.host,
                  .port = options_.port,
                  .num_threads = limits.num_slots + limits.max_waiting + kSpareThreads,
                  .refuse = refusal},
      Routes{*this}.all());
}

Server::~Server() {
  scheduler_.abandon();
}

std::string Server::url() const {
  const bool is_v6 = options_.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? fmt::format("[{}]", options_.host) : options_.host;
  return fmt::format("http://{}:{}", host, http_->port());
}

void Server::run(const std::function<bool()>& should_close) {
  scheduler_.run(should_close);
}

}  // namespace dflash::serve
