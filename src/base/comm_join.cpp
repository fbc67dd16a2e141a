#include "base/comm_join.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <list>

#include "base/error.h"
#include "base/frames.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/timer.h"

namespace dflash {
namespace {

constexpr double kHelloSeconds = 10;  // a stranger may be silent on a connection
constexpr double kTrySeconds = 2;     // of one attempt to connect
constexpr size_t kMaxPending = 4096;

struct Pending {
  Socket socket;
  Hello hello = {};
  size_t got = 0;
  Timer since = {};
};

class Meeting {
 public:
  explicit Meeting(const RankPlace& place) : place_(place), peers_(place.world) {}

  std::vector<Socket> go() {
    if (place_.rank == 0) {
      Socket listener =
          place_.listener >= 0 ? Socket(place_.listener) : listen_at({place_.address, place_.port});
      log_info("rank 0 of {} waits for the others at {}", place_.world, own_end(listener).text());
      accept_others(listener, /*first=*/1);
      send_roster();
    } else {
      reach_master();
    }
    for (const Socket& peer : peers_) {
      if (peer.open()) tune(peer);
    }
    return std::move(peers_);
  }

 private:
  double left() const { return place_.join_seconds - timer_.seconds(); }

  void check_time(const std::string& waits_for) const {
    if (stop_requested()) fail("ranks: stopped while waiting for {}", waits_for);
    if (left() > 0) return;
    fail(
        "ranks: rank {} of {} waited {:.0f} s for {}\n  hint: all ranks need the same WORLD_SIZE, "
        "MASTER_ADDR, MASTER_PORT and DFLASH_RUN_TOKEN; '--nproc 1' trains in one process",
        place_.rank, place_.world, place_.join_seconds, waits_for);
  }

  std::string missing(int first) const {
    std::vector<int> ranks;
    for (int r = first; r < place_.world; ++r) {
      if (r != place_.rank && !peers_[r].open()) ranks.push_back(r);
    }
    return fmt::format("rank {}", fmt::join(ranks, ", "));
  }

  /// Takes in all ranks from `first` on.
  void accept_others(const Socket& listener, int first) {
    endpoints_.resize(place_.world);
    std::list<Pending> pending;
    while (true) {
      const bool complete = std::all_of(peers_.begin() + first, peers_.end(),
                                        [](const Socket& peer) { return peer.open(); });
      if (complete) return;
      check_time(missing(first));
      std::vector<pollfd> wait = {{listener.fd(), POLLIN, 0}};
      for (const Pending& one : pending) wait.push_back({one.socket.fd(), POLLIN, 0});
      ::poll(wait.data(), wait.size(), 100);
      while (pending.size() < kMaxPending) {
        Socket socket = accept_from(listener);
        if (!socket.open()) break;
        pending.push_back({std::move(socket)});
      }
      pending.remove_if([&](Pending& one) { return hear(one, first); });
    }
  }

  /// True when the connection was taken in or is to be closed.
  bool hear(Pending& one, int first) {
    const Io io = read_some(one.socket, bytes_of(one.hello), one.got);
    if (io == Io::kEnd) return true;
    if (one.got < sizeof(Hello)) return one.since.seconds() > kHelloSeconds;
    if (one.hello.magic != kFrameMagic || field_text(one.hello.token) != place_.token) {
      log_warning("ranks: a connection of another program or run was refused");
      send_last_words(one.socket, "it belongs to another run (another token)", /*seconds=*/1);
      return true;
    }
    const std::string wrong = misplaced(one.hello, first);
    if (!wrong.empty()) {
      send_last_words(one.socket, wrong, /*seconds=*/1);
      fail("ranks: {}\n  hint: start all ranks with the same settings", wrong);
    }
    const auto rank = static_cast<int>(one.hello.rank);
    endpoints_[rank] = {field_text(one.hello.address), static_cast<uint16_t>(one.hello.port)};
    peers_[rank] = std::move(one.socket);
    return true;
  }

  std::string misplaced(const Hello& hello, int first) const {
    if (static_cast<int>(hello.world) != place_.world) {
      return fmt::format("rank {} says that there are {} ranks, rank {} that there are {}",
                         hello.rank, hello.world, place_.rank, place_.world);
    }
    const auto rank = static_cast<int64_t>(hello.rank);
    if (rank < first || rank >= place_.world) {
      return fmt::format("expected rank {} to {}, got {}", first, place_.world - 1, rank);
    }
    if (peers_[rank].open()) return fmt::format("two processes claim to be rank {}", rank);
    return {};
  }

  void send_roster() {
    std::vector<RosterEntry> roster(place_.world);
    for (int r = 1; r < place_.world; ++r) {
      set_field(roster[r].address, endpoints_[r].address);
      roster[r].port = endpoints_[r].port;
    }
    FrameHead head{.kind = kRoster, .bytes = roster.size() * sizeof(RosterEntry)};
    for (int r = 1; r < place_.world; ++r) {
      if (!write_all(peers_[r], bytes_of(head), left()) ||
          !write_all(peers_[r], std::as_bytes(std::span(roster)), left())) {
        fail("ranks: rank {} was there and is gone", r);
      }
    }
  }

  void reach_master() {
    const Endpoint master{place_.address, place_.port};
    peers_[0] = connect(master, "rank 0");
    const Socket listener = listen_at({own_end(peers_[0]).address, 0});
    say_hello(peers_[0], own_end(listener));
    const std::vector<RosterEntry> roster = hear_roster();
    for (int r = 1; r < place_.rank; ++r) {
      const Endpoint there{field_text(roster[r].address), static_cast<uint16_t>(roster[r].port)};
      peers_[r] = connect(there, fmt::format("rank {}", r));
      say_hello(peers_[r], {});
    }
    accept_others(listener, place_.rank + 1);
  }

  Socket connect(const Endpoint& endpoint, const std::string& whom) {
    for (std::string why;;) {
      Socket socket = connect_to(endpoint, std::min(left(), kTrySeconds), why);
      if (socket.open()) return socket;
      check_time(fmt::format("{} at {} ({})", whom, endpoint.text(), why));
      ::usleep(100'000);
    }
  }

  void say_hello(const Socket& socket, const Endpoint& listens) {
    Hello hello;
    hello.rank = static_cast<uint32_t>(place_.rank);
    hello.world = static_cast<uint32_t>(place_.world);
    hello.port = listens.port;
    set_field(hello.address, listens.address);
    set_field(hello.token, place_.token);
    if (!write_all(socket, bytes_of(hello), left())) fail("ranks: a rank was there and is gone");
  }

  std::vector<RosterEntry> hear_roster() {
    FrameHead head;
    hear_master(bytes_of(head));
    if (head.magic == kFrameMagic && head.kind == kLastWords && head.bytes <= kMaxTextBytes) {
      std::string why(head.bytes, ' ');
      hear_master(std::as_writable_bytes(std::span(why)));
      fail("ranks: rank 0 refuses: {}\n  hint: start all ranks with the same settings", why);
    }
    std::vector<RosterEntry> roster(place_.world);
    const auto bytes = std::as_writable_bytes(std::span(roster));
    if (head.magic != kFrameMagic || head.kind != kRoster || head.bytes != bytes.size()) {
      fail("ranks: what listens at {}:{} is no rank 0", place_.address, place_.port);
    }
    hear_master(bytes);
    return roster;
  }

  /// In pieces, so that a signal ends it.
  void hear_master(std::span<std::byte> into) {
    size_t done = 0;
    while (done < into.size()) {
      const Io io = read_some(peers_[0], into, done);
      if (io == Io::kEnd) {
        fail("ranks: rank 0 is gone before all ranks were there\n  hint: its output says why");
      }
      if (io == Io::kSome) continue;
      check_time("all other ranks");
      pollfd one{peers_[0].fd(), POLLIN, 0};
      ::poll(&one, 1, 100);
    }
  }

  const RankPlace& place_;
  std::vector<Socket> peers_;
  std::vector<Endpoint> endpoints_;
  Timer timer_;
};

}  // namespace

void send_last_words(const Socket& socket, std::string_view why, double seconds) {
  const std::string_view text = why.substr(0, kMaxTextBytes);
  FrameHead head{.kind = kLastWords, .bytes = text.size()};
  if (write_all(socket, bytes_of(head), seconds)) {
    write_all(socket, std::as_bytes(std::span(text)), seconds);
  }
}

std::vector<Socket> meet_ranks(const RankPlace& place) {
  return Meeting(place).go();
}

}  // namespace dflash
