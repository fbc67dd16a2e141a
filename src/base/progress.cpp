#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace dflash {
namespace {

bool enabled = true;

std::string bar(double fraction) {
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(fraction * kWidth);
  return fmt::format("[{:#>{}}{:.>{}}]", "", filled, "", kWidth - filled);
}

/// Columns of the terminal; 80 where it does not say.
int64_t terminal_columns() {
  winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string_view without_s(std::string_view plural) {
  return plural.ends_with('s') ? plural.substr(0, plural.size() - 1) : plural;
}

/// "100% 4/10 steps", or "4 steps" of an unknown total.
std::string position(const ProgressView& view, double fraction) {
  if (view.total <= 0) return counted(view.done, view.unit);
  return fmt::format("{:.0f}% {}/{} {}", std::floor(100 * fraction), view.done, view.total,
                     view.total == 1 ? without_s(view.unit) : view.unit);
}

/// ", 3.4/s, 2 min 10 s left", ", 3.4/s, took 12 s".
std::string pace(const ProgressView& view) {
  const double rate =
      view.seconds > 0 ? static_cast<double>(view.done - view.first) / view.seconds : 0;
  std::string text = rate > 0 ? ", " + format_rate(rate) : "";
  if (view.last) return text + ", took " + format_duration(view.seconds);
  if (rate > 0 && view.done < view.total) {
    text += ", " + format_duration(static_cast<double>(view.total - view.done) / rate) + " left";
  }
  return text;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto s = static_cast<int64_t>(std::max(seconds, 0.0) + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

std::string format_rate(double per_second) {
  if (per_second >= 9.95) return fmt::format("{:.0f}/s", per_second);
  if (per_second >= 1) return fmt::format("{:.1f}/s", per_second);
  const double each = 1 / per_second;
  return each < 9.95 ? fmt::format("{:.1f} s each", each) : format_duration(each) + " each";
}

std::string counted(int64_t count, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? without_s(plural) : plural);
}

bool knows_escapes(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

std::string progress_line(const ProgressView& view, int64_t columns) {
  const double fraction =
      view.total > 0
          ? std::clamp(static_cast<double>(view.done) / static_cast<double>(view.total), 0.0, 1.0)
          : 0;
  const std::string gauge = view.total > 0 ? " " + bar(fraction) : "";
  const std::string where = " " + position(view, fraction);
  const std::string note = view.note.empty() ? "" : "  " + view.note;
  const std::string label = fmt::format("{:<12}", view.label);
  for (const std::string& line :
       {label + gauge + where + pace(view) + note, label + where + pace(view) + note,
        view.label + where + pace(view)}) {
    if (columns == 0 || static_cast<int64_t>(line.size()) <= columns) return line;
  }
  std::string line = view.label + where;
  if (static_cast<int64_t>(line.size()) > columns) line.resize(columns);
  while (!line.empty() && (line.back() & 0x80) != 0) line.pop_back();  // no half character
  return line;
}

Progress::Progress(std::string label, std::string unit, int64_t total, int64_t done)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), first_(done), done_(done) {}

Progress::~Progress() {
  if (drawn_ && !finished_ && knows_escapes(STDERR_FILENO)) std::fputc('\n', stderr);
}

void Progress::set_enabled(bool value) {
  enabled = value;
}

void Progress::update(int64_t done, const std::string& note) {
  done_ = done;
  const double interval = knows_escapes(STDERR_FILENO) ? 0.2 : 10.0;
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
  const bool redraws = knows_escapes(STDERR_FILENO);
  // The last column stays free: a character there makes some terminals wrap.
  const std::string line =
      progress_line({label_, unit_, done_, first_, total_, timer_.seconds(), note, last},
                    redraws && !last ? terminal_columns() - 1 : 0);
  fmt::print(stderr, "{}{}{}", redraws ? "\r\x1b[K" : "", line, redraws && !last ? "" : "\n");
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace dflash
