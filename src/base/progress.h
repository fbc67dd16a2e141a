// Progress of long work on stderr: a bar with rate and time left on a terminal, a line every ten
// seconds elsewhere. Silent when disabled (tests, --quiet).
#pragma once

#include <cstdint>
#include <string>

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

/// "1 h 02 min", "3 min 20 s", "12 s"; "?" when not finite.
std::string format_duration(double seconds);

}  // namespace dflash
