// Progress of long work on stderr: a bar with rate and time left on a terminal, a line every ten
// seconds elsewhere (a pipe, TERM=dumb). Silent when disabled (tests, --quiet).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/timer.h"

namespace dflash {

class Progress {
 public:
  /// `label` names the work, `unit` what is counted ("tokens", "steps"), total its number (0 =
  /// unknown), `done` what an earlier, interrupted run had finished.
  Progress(std::string label, std::string unit, int64_t total, int64_t done = 0);
  ~Progress();

  /// Another number of what is to do, known only on the way.
  void set_total(int64_t total) { total_ = total; }
  /// `note` is shown at the end of the line ("loss 2.31").
  void update(int64_t done, const std::string& note = "");
  void finish(const std::string& note = "");

  static void set_enabled(bool enabled);

 private:
  void draw(const std::string& note, bool last);

  std::string label_, unit_;
  int64_t total_, first_, done_;
  Timer timer_, since_draw_;
  bool drawn_ = false, finished_ = false;
};

/// What one line of progress says.
struct ProgressView {
  std::string label, unit;
  int64_t done = 0, first = 0, total = 0;  // first: done by an earlier run; total 0: unknown
  double seconds = 0;
  std::string note = "";
  bool last = false;
};

/// The line, at most `columns` bytes long (0: no limit): bar, then note, then rate and time are
/// left out where they do not fit, and what is still too long is cut.
std::string progress_line(const ProgressView& view, int64_t columns);

/// Is `fd` a terminal that knows escape codes? Not with TERM=dumb.
bool knows_escapes(int fd);

/// "1 step", "2 steps": `plural` ends in s.
std::string counted(int64_t count, std::string_view plural);

/// "812/s", "3.4/s", "2.5 s each".
std::string format_rate(double per_second);

/// "1 h 02 min", "3 min 20 s", "12 s"; "?" when not finite.
std::string format_duration(double seconds);

}  // namespace dflash
