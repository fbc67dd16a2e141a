#include "base/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/timer.h"

namespace dflash {
namespace {

constexpr int kBacklog = 1024;
constexpr int kIdleSeconds = 30, kProbeSeconds = 10, kProbes = 9;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Nothing, with `why`, when the name is unknown.
Addresses look_up(const Endpoint& endpoint, std::string& why) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(),
                                 &hints, &found);
  if (code != 0) why = ::gai_strerror(code);
  return {code == 0 ? found : nullptr, &::freeaddrinfo};
}

Socket new_socket(const addrinfo& address) {
  return Socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         address.ai_protocol));
}

bool wait_for(const Socket& socket, short events, double seconds) {
  pollfd one{socket.fd(), events, 0};
  return ::poll(&one, 1, std::max(0, static_cast<int>(seconds * 1000.0))) > 0;
}

bool finish_connect(const Socket& socket, const addrinfo& address, double seconds) {
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  if (!wait_for(socket, POLLOUT, seconds)) {
    errno = ETIMEDOUT;
    return false;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

/// False when `seconds` passed or the other end is gone.
template <typename Step>
bool repeat(const Socket& socket, size_t size, short events, double seconds, const Step& step) {
  const Timer timer;
  size_t done = 0;
  while (done < size) {
    const Io io = step(done);
    if (io == Io::kEnd) return false;
    if (io == Io::kSome) continue;
    const double left = seconds - timer.seconds();
    if (left <= 0) return false;
    wait_for(socket, events, std::min(left, 0.2));
  }
  return true;
}

Io outcome(ssize_t size, size_t& done) {
  if (size > 0) {
    done += static_cast<size_t>(size);
    return Io::kSome;
  }
  const bool later = size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return later ? Io::kNothing : Io::kEnd;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket listen_at(const Endpoint& endpoint) {
  std::string why;
  const Addresses addresses = look_up(endpoint, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket = new_socket(*at);
    const int yes = 1;
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (socket.open() && ::bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.fd(), kBacklog) == 0) {
      return socket;
    }
    why = std::strerror(errno);
  }
  fail(
      "ranks: cannot listen at {}: {}\n  hint: MASTER_ADDR is an address of rank 0's machine, "
      "MASTER_PORT a free port on it",
      endpoint.text(), why);
}

Socket accept_from(const Socket& listener) {
  return Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Socket connect_to(const Endpoint& endpoint, double seconds, std::string& why) {
  const Addresses addresses = look_up(endpoint, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket = new_socket(*at);
    if (socket.open() && finish_connect(socket, *at, seconds)) return socket;
    why = std::strerror(errno);
  }
  return Socket();
}

Endpoint own_end(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  auto* bytes = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(socket.fd(), bytes, &size) != 0 ||
      ::getnameinfo(bytes, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    fail("ranks: a socket without an address: {}", std::strerror(errno));
  }
  return {host.data(), static_cast<uint16_t>(std::stoi(port.data()))};
}

void tune(const Socket& socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket.fd(), level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

Io read_some(const Socket& socket, std::span<std::byte> into, size_t& done) {
  return outcome(::recv(socket.fd(), into.data() + done, into.size() - done, 0), done);
}

Io write_some(const Socket& socket, std::span<const std::byte> from, size_t& done) {
  return outcome(::send(socket.fd(), from.data() + done, from.size() - done, MSG_NOSIGNAL), done);
}

bool read_all(const Socket& socket, std::span<std::byte> into, double seconds) {
  return repeat(socket, into.size(), POLLIN, seconds,
                [&](size_t& done) { return read_some(socket, into, done); });
}

bool write_all(const Socket& socket, std::span<const std::byte> from, double seconds) {
  return repeat(socket, from.size(), POLLOUT, seconds,
                [&](size_t& done) { return write_some(socket, from, done); });
}

}  // namespace dflash
