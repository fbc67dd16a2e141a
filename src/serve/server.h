// The service: endpoints over HTTP in front of the scheduler.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "serve/api.h"
#include "serve/scheduler.h"

namespace dflash::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;              // 0: any free one
  std::string drafter = {};  // its name, for people
  SchedulerOptions scheduler = {};
};

class HttpServer;

/// POST /v1/chat/completions, /v1/completions; GET /v1/models, /health and / (the chat page).
class Server {
 public:
  /// Accepts connections from here on. `target` and `proposer` must outlive it; proposer ==
  /// nullptr: plain decoding. Error: the address cannot be had.
  Server(Served served, const target::Target& target, decode::Proposer* proposer,
         ServerOptions options);
  /// Not while `run` runs.
  ~Server();

  std::string url() const;
  /// Answers, on the caller's thread, until `should_close`; then refuses new requests (503) and
  /// returns when the others have their answers.
  void run(const std::function<bool()>& should_close);
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Routes;

  Served served_;
  ServerOptions options_;
  Scheduler scheduler_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace dflash::serve
