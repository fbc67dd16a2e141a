// HTTP/1.1 as the server needs it: routes of exact method and path, bounded bodies, replies that
// are whole or written piece by piece, and a handler that can ask whether its client is still
// there. Over cpp-httplib, which stays in http.cpp; nothing here knows about models.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dflash::serve {

/// The other end of a connection, while its request is handled.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  /// It closed the connection: nobody will read the reply.
  virtual bool left() const = 0;
};

/// Takes the next piece of a reply; false when the client is gone.
using WritePiece = std::function<bool(std::string_view piece)>;

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// Not empty: the body comes piece by piece instead, until this returns. False cuts it short, so
  /// that the client sees a reply that broke off.
  std::function<bool(const WritePiece& write)> stream = {};
};

struct HttpRequest {
  std::string body;
  const HttpClient& client;  // lives as long as the request, `stream` of its reply included
};

struct HttpRoute {
  std::string method, path;  // "GET" (which answers HEAD too) or "POST"
  std::function<HttpReply(const HttpRequest&)> handler;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;             // 0: any free one
  int64_t num_threads = 8;  // requests handled at once; the connections beyond wait
  uint64_t max_body_bytes = uint64_t{16} << 20;
  /// The reply to what no handler sees: 400, 404, 405, 413, 415, 500.
  std::function<HttpReply(int status, const std::string& message)> refuse;
};

class HttpServer {
 public:
  /// Binds and begins to answer. An exception out of a handler is a 500 for its client alone.
  /// Error: the address is taken or none of this machine's.
  HttpServer(HttpOptions options, std::vector<HttpRoute> routes);
  /// Takes no more connections, ends those that wait for another request, and returns when the
  /// replies that were begun are written.
  ~HttpServer();

  int port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dflash::serve
