// The connections between ranks: one exchange sends a frame to every peer and receives one from
// each, all at once, so no order of sends and receives can lock up.
#pragma once

#include <poll.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/comm_tcp.h"
#include "base/frames.h"
#include "base/sockets.h"

namespace dflash {

/// What one exchange is about, and where bytes come from and go to.
struct Exchange {
  uint16_t kind = 0;
  uint64_t count = 0;
  std::function<std::span<const std::byte>(int peer)> out;
  /// Room for that many bytes of a peer; a message when they are not as many as they should be.
  std::function<std::span<std::byte>(int peer, uint64_t bytes)> room;
};

/// Both directions with one peer in one exchange.
struct Transfer {
  FrameHead out_head, in_head;
  std::span<const std::byte> out;
  std::span<std::byte> in;
  size_t sent = 0, received = 0;  // heads included
  bool send_broken = false;
  std::string last_words;

  size_t to_send() const { return sizeof(FrameHead) + out.size(); }
  bool has_head() const { return received >= sizeof(FrameHead); }
  bool all_sent() const { return sent == to_send(); }
  bool all_received() const { return has_head() && received == sizeof(FrameHead) + in.size(); }
};

class Mesh {
 public:
  /// Meets the other ranks.
  explicit Mesh(const RankPlace& place);

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(peers_.size()); }
  /// Error: a peer is gone, silent, does something else or failed itself; nothing works afterwards.
  void run(const Exchange& exchange);
  /// Last words to those who were not told yet: why the first failure was.
  void leave(std::string_view why) noexcept;
  /// For Exchange::room: that many bytes do not fit.
  [[noreturn]] void bad_size(int peer, uint64_t size);

 private:
  bool finished(int p) const;
  bool wait_once();
  bool move_bytes();
  bool send(int p);
  bool receive(int p);
  void open_frame(int p);
  std::string doing() const { return describe_frame(exchange_->kind, exchange_->count); }
  [[noreturn]] void give_up_on(int p);
  [[noreturn]] void give_up_waiting();
  void break_off(const std::string& text);
  [[noreturn]] void give_up(const std::string& text);
  [[noreturn]] void give_up(int p, const std::string& last_words);
  void say_goodbye(const std::string& why);

  int rank_;
  double patience_;
  std::vector<Socket> peers_;
  std::vector<bool> at_boundary_;  // no frame to that peer is half sent
  std::vector<Transfer> transfers_;
  std::vector<pollfd> wait_;
  const Exchange* exchange_ = nullptr;
  uint64_t sequence_ = 0;
  std::string failure_;  // afterwards nothing works any more
};

}  // namespace dflash
