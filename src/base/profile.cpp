#include "base/profile.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include "base/error.h"

namespace dflash::profile {
namespace {

constexpr size_t kMaxEvents = size_t{1} << 22;  // of a thread: 64 bytes each

/// Events of one thread; only that thread writes while a profile runs.
struct Buffer {
  int32_t thread = 0;
  uint64_t profile = 0;  // the profile that the contents belong to
  std::vector<Event> events = {};
  std::vector<size_t> open = {};  // of events, the innermost last; kMaxEvents: a lost one
  int64_t lost = 0;
};

/// Of the whole process. Buffers outlive their threads.
struct Recorder {
  std::mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::atomic<uint64_t> profile{0};  // its number, from 1 on
  std::chrono::steady_clock::time_point start;
};

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              recorder().start)
      .count();
}

/// This thread's buffer, emptied when it is of an earlier profile.
Buffer& own_buffer() {
  thread_local std::shared_ptr<Buffer> own;
  Recorder& all = recorder();
  const uint64_t current = all.profile.load(std::memory_order_relaxed);
  if (!own) own = std::make_shared<Buffer>();
  if (own->profile != current) {
    const std::lock_guard lock(all.mutex);
    *own = {.thread = static_cast<int32_t>(all.buffers.size()), .profile = current};
    all.buffers.push_back(own);
  }
  return *own;
}

}  // namespace

void Range::begin(const char* name, const Work& work) {
  open_ = true;
  Buffer& buffer = own_buffer();
  if (buffer.events.size() >= kMaxEvents) {
    ++buffer.lost;
    buffer.open.push_back(kMaxEvents);
    return;
  }
  buffer.open.push_back(buffer.events.size());
  buffer.events.push_back({.group = group_,
                           .name = name,
                           .begin_ns = now_ns(),
                           .end_ns = -1,
                           .thread = buffer.thread,
                           .depth = static_cast<int32_t>(buffer.open.size()) - 1,
                           .work = work});
}

void Range::end() {
  open_ = false;
  Buffer& buffer = own_buffer();
  if (buffer.open.empty()) return;  // the profile that it began in is over
  const size_t at = buffer.open.back();
  buffer.open.pop_back();
  if (at < buffer.events.size()) buffer.events[at].end_ns = now_ns();
}

void start() {
  Recorder& all = recorder();
  DF_ASSERT(!is_on(), "a profile runs");
  {
    const std::lock_guard lock(all.mutex);
    all.buffers.clear();
    all.start = std::chrono::steady_clock::now();
    all.profile.fetch_add(1);
  }
  own_buffer();  // thread 0
  internal::running.store(true);
}

Profile stop() {
  Recorder& all = recorder();
  DF_ASSERT(is_on(), "no profile runs");
  internal::running.store(false);
  Profile out;
  out.total_ns = now_ns();
  const std::lock_guard lock(all.mutex);
  for (const auto& buffer : all.buffers) {
    out.lost += buffer->lost;
    for (const Event& event : buffer->events) {
      if (event.end_ns >= 0) out.events.push_back(event);
    }
  }
  all.buffers.clear();
  all.profile.fetch_add(1);
  return out;
}

}  // namespace dflash::profile
