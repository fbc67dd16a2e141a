// TCP sockets as this program needs them: owned descriptors, waits that end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace dflash {

/// Owns a descriptor; all sockets here are non-blocking and closed on exec.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct Endpoint {
  std::string address;  // a number, or a name to be looked up
  uint16_t port = 0;
  std::string text() const { return address + ":" + std::to_string(port); }
};

/// Listens there and on no other address; port 0: a free one. Error: not this machine's, taken.
Socket listen_at(const Endpoint& endpoint);
/// A connection that waits at `listener`; closed when there is none.
Socket accept_from(const Socket& listener);
/// Closed when nobody listens there or `seconds` passed; `why` then says so.
Socket connect_to(const Endpoint& endpoint, double seconds, std::string& why);
/// Where this end of a socket is, as numbers.
Endpoint own_end(const Socket& socket);
/// Made ready for ranks: small messages at once; a dead machine that is waited for is noticed in
/// two minutes. A slow one is not: it may read nothing for as long as a step takes.
void tune(const Socket& socket);

enum class Io { kSome, kNothing, kEnd };  // kEnd: closed or broken
/// What can be read or written at once, added to `done`.
Io read_some(const Socket& socket, std::span<std::byte> into, size_t& done);
Io write_some(const Socket& socket, std::span<const std::byte> from, size_t& done);
/// All of it; false when the other end closed or `seconds` passed.
bool read_all(const Socket& socket, std::span<std::byte> into, double seconds);
bool write_all(const Socket& socket, std::span<const std::byte> from, double seconds);

}  // namespace dflash
