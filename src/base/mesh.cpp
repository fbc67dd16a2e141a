#include "base/mesh.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/comm_join.h"
#include "base/error.h"
#include "base/timer.h"

namespace dflash {
namespace {

constexpr double kGoodbyeSeconds = 2;

}  // namespace

Mesh::Mesh(const RankPlace& place)
    : rank_(place.rank),
      patience_(place.peer_seconds),
      peers_(meet_ranks(place)),
      at_boundary_(peers_.size(), true) {}

void Mesh::leave(std::string_view why) noexcept {
  try {
    say_goodbye(failure_.empty() ? std::string(why) : failure_);
  } catch (...) {  // they will see that the connection ends
  }
}

void Mesh::bad_size(int peer, uint64_t size) {
  give_up(fmt::format("rank {} sent {} bytes, which does not fit {}", peer, size, doing()));
}

/// Sends to and receives from every peer at once.
void Mesh::run(const Exchange& exchange) {
  if (!failure_.empty()) fail("{}", failure_);
  exchange_ = &exchange;
  ++sequence_;
  transfers_.assign(peers_.size(), {});
  for (int p = 0; p < world(); ++p) {
    if (p == rank_) continue;
    Transfer& t = transfers_[p];
    t.out = exchange.out(p);
    t.out_head = {.kind = exchange.kind,
                  .sequence = sequence_,
                  .count = exchange.count,
                  .bytes = t.out.size()};
    at_boundary_[p] = false;
  }
  Timer silence;
  while (wait_once()) {
    if (move_bytes()) silence.restart();
    if (silence.seconds() > patience_) give_up_waiting();
  }
  std::fill(at_boundary_.begin(), at_boundary_.end(), true);
}

bool Mesh::finished(int p) const {
  return p == rank_ || (transfers_[p].all_sent() && transfers_[p].all_received());
}

/// False when nothing is left to be done.
bool Mesh::wait_once() {
  wait_.clear();
  for (int p = 0; p < world(); ++p) {
    if (finished(p)) continue;
    const Transfer& t = transfers_[p];
    const bool sends = !t.all_sent() && !t.send_broken;
    wait_.push_back({peers_[p].fd(), static_cast<short>((sends ? POLLOUT : 0) | POLLIN), 0});
  }
  if (wait_.empty()) return false;
  ::poll(wait_.data(), wait_.size(), static_cast<int>(std::min(patience_, 1.0) * 1000));
  return true;
}

bool Mesh::move_bytes() {
  bool moved = false;
  for (int p = 0; p < world(); ++p) {
    if (finished(p)) continue;
    moved = receive(p) || moved;
    moved = send(p) || moved;
  }
  return moved;
}

bool Mesh::send(int p) {
  Transfer& t = transfers_[p];
  const size_t before = t.sent;
  while (!t.all_sent() && !t.send_broken) {
    Io io = Io::kNothing;
    if (t.sent < sizeof(FrameHead)) {
      io = write_some(peers_[p], bytes_of(t.out_head), t.sent);
    } else {
      size_t done = t.sent - sizeof(FrameHead);
      io = write_some(peers_[p], t.out, done);
      t.sent = done + sizeof(FrameHead);
    }
    if (io == Io::kNothing) break;
    t.send_broken = io == Io::kEnd;  // what it said last may still be read
  }
  if (t.send_broken && t.all_received()) give_up_on(p);
  return t.sent > before;
}

bool Mesh::receive(int p) {
  Transfer& t = transfers_[p];
  const size_t before = t.received;
  while (!t.all_received()) {
    Io io = Io::kNothing;
    if (!t.has_head()) {
      io = read_some(peers_[p], bytes_of(t.in_head), t.received);
      if (t.has_head()) open_frame(p);
    } else {
      size_t done = t.received - sizeof(FrameHead);
      io = read_some(peers_[p], t.in, done);
      t.received = done + sizeof(FrameHead);
    }
    if (io == Io::kEnd) give_up_on(p);
    if (io == Io::kNothing) break;
  }
  if (t.all_received() && t.in_head.kind == kLastWords) {
    give_up(p, t.last_words);
  }
  return t.received > before;
}

void Mesh::open_frame(int p) {
  Transfer& t = transfers_[p];
  const FrameHead& head = t.in_head;
  if (head.magic == kFrameMagic && head.kind == kLastWords && head.bytes <= kMaxTextBytes) {
    t.last_words.resize(head.bytes);
    t.in = std::as_writable_bytes(std::span(t.last_words));
    return;
  }
  if (head.magic != kFrameMagic || head.kind != exchange_->kind || head.sequence != sequence_ ||
      head.count != exchange_->count) {
    give_up(fmt::format(
        "they part ways: rank {} does {} (message {}), rank {} {} (message {})\n  hint: start "
        "all ranks with the same program, options and data",
        p, describe_frame(head.kind, head.count), head.sequence, rank_, doing(), sequence_));
  }
  t.in = exchange_->room(p, head.bytes);
}

void Mesh::give_up_on(int p) {
  Transfer& t = transfers_[p];
  FrameHead head;  // after what it owed, it may have said why it goes
  if (t.all_received() && read_all(peers_[p], bytes_of(head), 0.2) && head.magic == kFrameMagic &&
      head.kind == kLastWords && head.bytes <= kMaxTextBytes) {
    std::string words(head.bytes, ' ');
    if (read_all(peers_[p], std::as_writable_bytes(std::span(words)), 1)) {
      give_up(p, words);
    }
  }
  give_up(
      fmt::format("rank {} ended or cannot be reached any more ({})\n  hint: its own output "
                  "says why; the same command starts all ranks again",
                  p, doing()));
}

void Mesh::give_up_waiting() {
  std::vector<int> late;
  for (int p = 0; p < world(); ++p) {
    if (!finished(p)) late.push_back(p);
  }
  give_up(
      fmt::format("nothing came from rank {} for {:.0f} s ({})\n  hint: is it slower or stuck? "
                  "--rank-timeout takes more seconds",
                  fmt::join(late, ", "), patience_, doing()));
}

void Mesh::break_off(const std::string& text) {
  for (int p = 0; p < world(); ++p) {
    if (p != rank_) at_boundary_[p] = transfers_[p].sent == 0 || transfers_[p].all_sent();
  }
  failure_ = "ranks: " + text;
}

void Mesh::give_up(const std::string& text) {
  break_off(text);
  throw Error(failure_);
}

/// Where a rank only passes on what it heard of another, the words stay as they are.
void Mesh::give_up(int p, const std::string& last_words) {
  const bool heard = last_words.starts_with("ranks: rank ");
  break_off(heard ? last_words.substr(std::string_view("ranks: ").size())
                  : fmt::format("rank {} failed: {}", p, last_words));
  throw ToldError(failure_);
}

/// Once. The last words are read by those who come to the next collective.
void Mesh::say_goodbye(const std::string& why) {
  for (int p = 0; p < world(); ++p) {
    if (!peers_[p].open() || !at_boundary_[p]) continue;
    send_last_words(peers_[p], why, kGoodbyeSeconds);
    ::shutdown(peers_[p].fd(), SHUT_WR);
    at_boundary_[p] = false;
  }
  if (failure_.empty()) failure_ = why;
  // To close with bytes unread would tear down what was just written.
  std::array<std::byte, 1 << 16> waste;
  const Timer timer;
  for (int p = 0; p < world(); ++p) {
    if (!peers_[p].open()) continue;
    for (size_t done = 0; timer.seconds() < kGoodbyeSeconds; done = 0) {
      pollfd one{peers_[p].fd(), POLLIN, 0};
      ::poll(&one, 1, 100);
      if (read_some(peers_[p], waste, done) == Io::kEnd) break;
    }
  }
}

std::string describe_frame(uint16_t kind, uint64_t count) {
  switch (static_cast<CommKind>(kind)) {
    case CommKind::kSumF32:
      return fmt::format("all_reduce of {} floats", count);
    case CommKind::kSumF64:
      return fmt::format("all_reduce of {} doubles", count);
    case CommKind::kSumI64:
      return fmt::format("all_reduce of {} integers", count);
    case CommKind::kBroadcast:
      return "broadcast";
    case CommKind::kGather:
      return "all_gather";
    case CommKind::kBarrier:
      return "barrier";
  }
  return "something unknown";
}

}  // namespace dflash
