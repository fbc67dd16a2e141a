// Where the time goes: ranges placed at the joints of the work, a table of them, and a trace that
// chrome://tracing and Perfetto open. Off by default: then a range is one test of a flag.
//
//   const profile::Range range("target", "q, k and v", [&] { return profile::product(r, o, i, 2);
//   });
//
// Ranges of one thread nest. Group and name are texts that live as long as the program. What a
// range does (operations, bytes) is counted by its caller and asked for only while a profile runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace dflash::profile {

namespace internal {
inline std::atomic<bool> running{false};
}  // namespace internal

inline bool is_on() {
  return internal::running.load(std::memory_order_relaxed);
}

struct Work {
  double operations = 0;  // floating-point
  double bytes = 0;       // read and written in memory, as far as they must be
};

/// [rows, in] x [in, out] with weights of `width` bytes: 2 rows out in operations; the weights, and
/// rows in and out in f32.
inline Work product(int64_t rows, int64_t out, int64_t in, int64_t width) {
  const auto r = static_cast<double>(rows), o = static_cast<double>(out),
             i = static_cast<double>(in);
  return {2 * r * o * i, o * i * static_cast<double>(width) + 4 * r * (o + i)};
}

class Range {
 public:
  Range(const char* group, const char* name) : group_(group) {
    if (is_on()) begin(name, {});
  }
  /// `work()` -> Work, called only while a profile runs.
  template <typename GetWork>
  Range(const char* group, const char* name, const GetWork& work) : group_(group) {
    if (is_on()) begin(name, work());
  }
  ~Range() {
    if (open_) end();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  /// Ends here and goes on as another range of the group: the parts of a function, one after the
  /// other.
  void next(const char* name) {
    next(name, [] { return Work{}; });
  }
  template <typename GetWork>
  void next(const char* name, const GetWork& work) {
    if (open_) end();
    if (is_on()) begin(name, work());
  }

 private:
  void begin(const char* name, const Work& work);
  void end();
  const char* group_;
  bool open_ = false;
};

struct Event {
  const char* group = nullptr;
  const char* name = nullptr;
  int64_t begin_ns = 0, end_ns = 0;  // since the start of the profile
  int32_t thread = 0;                // 0: the one that started the profile
  int32_t depth = 0;                 // open ranges of the thread around it
  Work work;
};

struct Profile {
  std::vector<Event> events;  // by thread, then by begin; a range before the ones inside it
  int64_t total_ns = 0;       // from start to stop
  int64_t lost = 0;           // ranges beyond the limit, not recorded
};

/// Not while ranges are open in other threads. Asserts that none runs.
void start();
/// Ranges that are still open are left out.
Profile stop();

/// One line of the table: ranges of one group and name. Time is their own, without the ranges
/// inside them, so that shares sum to one.
struct Row {
  std::string group, name;
  int64_t calls = 0;
  double ms = 0, share = 0;
  double gflops = 0, gbs = 0;  // 0: not counted
};
/// Of the thread that started the profile, the largest share first; then "not covered".
std::vector<Row> table(const Profile& profile);
/// The table for people, with what other threads did below it.
std::string text(const Profile& profile);
/// Chrome's trace events: complete ones ("X"), microseconds.
Json trace(const Profile& profile);
void write_trace(const Profile& profile, const std::filesystem::path& path);

}  // namespace dflash::profile
