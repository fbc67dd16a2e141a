// Clients by hand, byte for byte: those that leave in odd ways, and those that never finish a
// request.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "serve/world.h"

namespace dflash::serve {
namespace {

class RawClient {
 public:
  explicit RawClient(const Service& service) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const std::string url = service.url();
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int failed =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    EXPECT_EQ(failed, 0);
  }
  ~RawClient() { ::close(socket_); }

  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// Until the other side closes.
  void read_all() const {
    char buffer[512];
    while (::recv(socket_, buffer, sizeof(buffer), 0) > 0) {
    }
  }

 private:
  int socket_;
};

std::string post_of(const std::string& body) {
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(),
      body);
}

// Bytes that nobody has read do not hide that the connection is closed.
TEST(Connection, AClientThatLeavesAfterMoreBytesIsNoticed) {
  const fake::FakeTarget target({.vocab = kLetters, .max_positions = 1 << 20}, talkative());
  Service service(target);
  {
    const RawClient client(service);
    client.send(
        post_of(R"({"messages": [{"role": "user", "content": "long"}], "max_tokens": 1000000})"));
    client.send("\r\n");
    while (service.status().running == 0) {
    }
  }
  while (service.status().cancelled == 0) {
  }
  EXPECT_EQ(service.status().running, 0);
}

// A request that has not arrived is not one of those that are finished before the server goes.
TEST(Connection, HalfARequestDoesNotKeepTheServerFromStopping) {
  const fake::FakeTarget target({.vocab = kLetters}, talkative());
  auto service = std::make_unique<Service>(target);
  const RawClient body(*service), header(*service);
  body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{");
  header.send("GET /health HTTP/1.1\r\nX: ");
  EXPECT_EQ(service->get("/health").first, 200);  // they are in by now
  service.reset();
  body.read_all();
  header.read_all();
}

}  // namespace
}  // namespace dflash::serve
