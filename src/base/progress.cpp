#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace dflash {
namespace {

bool enabled = true;

std::string bar(double fraction) {
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  return std::string(filled, '#') + std::string(kWidth - filled, '.');
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto s = static_cast<int64_t>(std::max(seconds, 0.0) + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

Progress::Progress(std::string label, std::string unit, int64_t total, int64_t done)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), first_(done), done_(done) {}

Progress::~Progress() {
  if (drawn_ && !finished_ && isatty(STDERR_FILENO)) std::fputc('\n', stderr);
}

void Progress::set_enabled(bool value) {
  enabled = value;
}

void Progress::update(int64_t done, const std::string& note) {
  done_ = done;
  const double interval = isatty(STDERR_FILENO) ? 0.2 : 10.0;
  if (since_draw_.seconds() < interval) return;
  since_draw_.restart();
  draw(note, /*last=*/false);
}

void Progress::finish(const std::string& note) {
  if (finished_) return;
  draw(note, /*last=*/true);
  finished_ = true;
}

void Progress::draw(const std::string& note, bool last) {
  if (!enabled) return;
  const double elapsed = timer_.seconds();
  const double rate = elapsed > 0 ? static_cast<double>(done_ - first_) / elapsed : 0;
  std::string line = fmt::format("{:<12}", label_);
  if (total_ > 0) {
    const double fraction = static_cast<double>(done_) / static_cast<double>(total_);
    line += fmt::format(" [{}] {:3.0f}%", bar(fraction), 100 * std::min(fraction, 1.0));
  }
  line += fmt::format(" {} {}, {:.0f}/s", done_, unit_, rate);
  if (last) {
    line += ", took " + format_duration(elapsed);
  } else if (total_ > 0 && rate > 0) {
    line += ", " + format_duration(static_cast<double>(total_ - done_) / rate) + " left";
  }
  if (!note.empty()) line += "  " + note;
  const bool tty = isatty(STDERR_FILENO) != 0;
  fmt::print(stderr, "{}{}{}", tty ? "\r\x1b[K" : "", line, tty && !last ? "" : "\n");
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace dflash
