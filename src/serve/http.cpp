// The only file that includes cpp-httplib. Connections are read and written by a stream of our own:
// httplib's does not let a handler see that its client has left, which must end a generation
// (SV-04), and keeps idle connections for seconds when the server stops.
#include "serve/http.h"

#include <httplib.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace dflash::serve {
namespace {

constexpr int kReadSeconds = 10, kWriteSeconds = 10, kIdleSeconds = 5;
constexpr int kRequestSeconds = 30;  // from a request's first byte to its last, however it trickles
constexpr int kPollMs = 50;          // how soon an idle connection sees that the server stops

bool wait_for(int socket, short events, int milliseconds) {
  pollfd one = {.fd = socket, .events = events, .revents = 0};
  int ready;
  do {
    ready = ::poll(&one, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void address_of(int (*get)(int, sockaddr*, socklen_t*), int socket, std::string& ip, int& port) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> service = {};
  if (get(socket, any, &size) != 0) return;
  if (::getnameinfo(any, size, host.data(), host.size(), service.data(), service.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host.data();
  port = std::atoi(service.data());
}

class Connection final : public httplib::Stream, public HttpClient {
 public:
  Connection(int socket, const std::atomic<bool>& stopping) : socket_(socket), stopping_(stopping) {
    const int yes = 1;  // a piece of text is sent at once
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  ~Connection() override {
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
  }

  /// Also when it only closed its own side, and whatever it sent before.
  bool left() const override { return wait_for(socket_, POLLRDHUP, 0); }
  /// Another request begins to come in; false: it closed, idled for long, or the server stops.
  bool wait_for_request() {
    for (int waited = 0; waited < kIdleSeconds * 1000 && !stopping_; waited += kPollMs) {
      if (begin_ < end_ || wait_for(socket_, POLLIN, kPollMs)) {
        arrives_until_ = std::chrono::steady_clock::now() + std::chrono::seconds(kRequestSeconds);
        return begin_ < end_ || !left();
      }
    }
    return false;
  }

  bool is_readable() const override {
    if (begin_ < end_) return true;
    for (int waited = 0; waited < kReadSeconds * 1000 && !stopping_; waited += kPollMs) {
      if (std::chrono::steady_clock::now() > arrives_until_) return false;
      if (wait_for(socket_, POLLIN, kPollMs)) return true;
    }
    return false;
  }
  bool is_writable() const override {
    return !left() && wait_for(socket_, POLLOUT, kWriteSeconds * 1000);
  }
  ssize_t read(char* to, size_t size) override {
    if (begin_ == end_) {
      if (!is_readable()) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    const size_t taken = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, taken, to);
    begin_ += taken;
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!wait_for(socket_, POLLOUT, kWriteSeconds * 1000)) return -1;
    return ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    address_of(::getpeername, socket_, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    address_of(::getsockname, socket_, ip, port);
  }
  socket_t socket() const override { return socket_; }

  bool last_request = false;  // what follows in it is no request: it was not read to its end

 private:
  int socket_;
  const std::atomic<bool>& stopping_;
  std::chrono::steady_clock::time_point arrives_until_ = {};  // the request must have come by then
  std::array<char, 4096> buffer_;
  size_t begin_ = 0, end_ = 0;
};

/// Of the thread that handles it.
thread_local Connection* current = nullptr;

/// By the headers: such a request is followed by bytes that are no request.
bool has_body(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") &&
          request.get_header_value("Content-Length") != "0");
}

}  // namespace

class HttpServer::Impl final : public httplib::Server {
 public:
  Impl(HttpOptions options, std::vector<HttpRoute> routes)
      : options_(std::move(options)), routes_(std::move(routes)) {
    configure();
    for (const HttpRoute& route : routes_) add(route);
    port_ = options_.port == 0 ? bind_to_any_port(options_.host)
                               : (bind_to_port(options_.host, options_.port) ? options_.port : -1);
    if (port_ < 0) {
      fail(
          "serve: cannot listen on {}:{}\n  hint: is another program there? --port 0 takes any "
          "free one",
          options_.host, options_.port);
    }
    listener_ = std::thread([this] { listen_after_bind(); });
    while (!is_running()) std::this_thread::yield();  // stop() before that is lost
  }

  ~Impl() override {
    stopping_ = true;
    std::unique_lock lock(mutex_);  // httplib breaks off chunked replies when it stops
    idle_.wait(lock, [this] { return num_replies_ == 0; });
    lock.unlock();
    stop();
    listener_.join();
  }

  int port() const { return port_; }

 private:
  bool process_and_close_socket(socket_t socket) override;
  void configure();
  void add(const HttpRoute& route);
  HandlerResponse check_route(const httplib::Request& request, httplib::Response& response);
  void answer(const HttpRoute& route, const httplib::Request& request, httplib::Response& response,
              const httplib::ContentReader* reader);
  void put(HttpReply reply, httplib::Response& response);
  enum class After { kKeep, kClose };  // kClose: what follows may be the rest of a body
  void refuse(int status, const std::string& message, httplib::Response& response,
              After after = After::kClose);

  HttpOptions options_;
  std::vector<HttpRoute> routes_;
  int port_ = -1;
  std::thread listener_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable idle_;
  int64_t num_replies_ = 0;  // requests that were begun and not answered to the end
};

bool HttpServer::Impl::process_and_close_socket(socket_t socket) {
  Connection connection(socket, stopping_);
  current = &connection;
  bool ok = true;
  while (ok && !connection.last_request && connection.wait_for_request()) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
      ++num_replies_;
    }
    bool closed = false;
    ok = process_request(connection, /*close_connection=*/false, closed, nullptr);
    ok = ok && !closed;
    std::lock_guard lock(mutex_);
    --num_replies_;
    idle_.notify_all();
  }
  current = nullptr;
  return ok;
}

void HttpServer::Impl::configure() {
  new_task_queue = [threads = options_.num_threads] {
    return new httplib::ThreadPool(static_cast<size_t>(threads));
  };
  // httplib's own options let several servers share a port, and each would get some requests.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  set_keep_alive_timeout(kIdleSeconds);
  set_keep_alive_max_count(1000);  // said in a header, not counted
  set_payload_max_length(options_.max_body_bytes);
  set_pre_routing_handler(
      [this](const auto& request, auto& response) { return check_route(request, response); });
  set_error_handler(Handler([this](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) refuse(response.status, "the request cannot be read", response);
  }));
  set_exception_handler([this](const auto&, httplib::Response& response, std::exception_ptr) {
    refuse(500, "internal error", response);
  });
}

/// Before the body is read: unknown paths and methods.
HttpServer::Impl::HandlerResponse HttpServer::Impl::check_route(const httplib::Request& request,
                                                                httplib::Response& response) {
  std::vector<std::string> methods;
  for (const HttpRoute& route : routes_) {
    if (route.path != request.path) continue;
    methods.push_back(route.method);
    if (route.method == "GET") methods.push_back("HEAD");
  }
  if (std::find(methods.begin(), methods.end(), request.method) != methods.end()) {
    return HandlerResponse::Unhandled;
  }
  const After after = has_body(request) ? After::kClose : After::kKeep;
  if (methods.empty()) {
    refuse(404, fmt::format("no such path: {}", request.path), response, after);
  } else {
    const std::string allowed = fmt::format("{}", fmt::join(methods, ", "));
    refuse(405, fmt::format("{}: expected {}, got {}", request.path, allowed, request.method),
           response, after);
    response.set_header("Allow", allowed);
  }
  return HandlerResponse::Handled;
}

void HttpServer::Impl::add(const HttpRoute& route) {
  // Paths are matched exactly by check_route before this.
  if (route.method == "GET") {
    Get(route.path, [this, &route](const httplib::Request& request, httplib::Response& response) {
      answer(route, request, response, nullptr);
    });
  } else {
    Post(route.path, [this, &route](const auto& request, auto& response, const auto& reader) {
      answer(route, request, response, &reader);
    });
  }
}

void HttpServer::Impl::answer(const HttpRoute& route, const httplib::Request& request,
                              httplib::Response& response, const httplib::ContentReader* reader) {
  HttpRequest ours{.body = {}, .client = *current};
  if (reader != nullptr) {
    if (request.is_multipart_form_data()) return refuse(415, "expected a JSON body", response);
    bool fits = true;  // whatever the headers say: the body may be chunked or compressed
    const bool read = (*reader)([&](const char* data, size_t size) {
      fits = ours.body.size() + size <= options_.max_body_bytes;
      if (fits) ours.body.append(data, size);
      return fits;
    });
    if (!fits || response.status == 413) {
      return refuse(413, fmt::format("body: expected at most {} bytes", options_.max_body_bytes),
                    response);
    }
    if (!read) return refuse(400, "body: it cannot be read", response);
  }
  try {
    put(route.handler(ours), response);
  } catch (const std::exception& error) {
    log_warning("{}: {}", route.path, error.what());
    put(options_.refuse(500, error.what()), response);
  }
}

void HttpServer::Impl::refuse(int status, const std::string& message, httplib::Response& response,
                              After after) {
  put(options_.refuse(status, message), response);
  if (after == After::kKeep) return;
  current->last_request = true;
  response.set_header("Connection", "close");
}

void HttpServer::Impl::put(HttpReply reply, httplib::Response& response) {
  response.status = reply.status;
  for (const auto& [name, value] : reply.headers) response.set_header(name, value);
  if (!reply.stream) {
    response.set_content(reply.body, reply.content_type);
    return;
  }
  response.set_chunked_content_provider(
      reply.content_type, [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
        const WritePiece write = [&](std::string_view piece) {
          return piece.empty() || sink.write(piece.data(), piece.size());
        };
        bool whole = false;
        try {
          whole = stream(write);
        } catch (const std::exception& error) {
          log_warning("stream: {}", error.what());
        }
        if (whole) sink.done();
        return whole;
      });
}

HttpServer::HttpServer(HttpOptions options, std::vector<HttpRoute> routes)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(routes))) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->port();
}

}  // namespace dflash::serve
