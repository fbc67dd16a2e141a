#include "io/array_reader.h"

#include <utility>

#include "base/error.h"

namespace dflash::io {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kMaxOpeningBytes = 4096;  // `{`, blanks, key, blanks, `:`

/// Recognises `,{"key":` with blanks anywhere between, byte by byte.
class OpeningMatch {
 public:
  explicit OpeningMatch(std::string_view key) : quoted_('"' + std::string(key) + '"') {}

  bool take(char byte) {
    if (at_ > 1 && byte != '{') text_.push_back(byte);
    const bool blank = kBlanks.find(byte) != std::string_view::npos;
    const bool between = at_ <= 2 || at_ == 2 + quoted_.size();
    if (blank && between && text_.size() < kMaxOpeningBytes) return false;
    if (at_ == 1 && byte == '{') {
      text_.assign(1, byte);
      at_ = 2;
    } else if (at_ >= 2 && at_ < 2 + quoted_.size() && byte == quoted_[at_ - 2]) {
      ++at_;
    } else if (at_ == 2 + quoted_.size() && byte == ':') {
      return true;
    } else {
      text_.clear();
      at_ = byte == ',' ? 1 : 0;
    }
    return false;
  }
  /// From the brace on.
  const std::string& text() const { return text_; }

 private:
  std::string quoted_, text_;
  size_t at_ = 0;  // 0: nothing, 1: comma, 2: brace, then bytes of the quoted key
};

}  // namespace

bool ArrayReader::starts_array(std::string_view head) {
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  const size_t solid = head.find_first_not_of(kBlanks);
  return solid != std::string_view::npos && head[solid] == '[';
}

std::string_view ArrayReader::window() {
  if (put_back_at_ < put_back_.size()) return std::string_view(put_back_).substr(put_back_at_);
  return file_.window();
}

void ArrayReader::consume(size_t bytes) {
  offset_ += bytes;
  if (put_back_at_ < put_back_.size()) {
    put_back_at_ += bytes;
  } else {
    file_.consume(bytes);
  }
}

void ArrayReader::put_back(std::string text) {
  offset_ -= text.size();
  put_back_ = std::move(text) + put_back_.substr(put_back_at_);
  put_back_at_ = 0;
}

char ArrayReader::next_solid() {
  for (std::string_view bytes = window(); !bytes.empty(); bytes = window()) {
    const size_t solid = bytes.find_first_not_of(kBlanks);
    if (solid == std::string_view::npos) {
      consume(bytes.size());
      continue;
    }
    const char byte = bytes[solid];  // consume() may end what `bytes` sees
    consume(solid);
    return byte;
  }
  return 0;
}

void ArrayReader::skip_mark() {
  if (window().starts_with(kByteOrderMark)) consume(kByteOrderMark.size());
}

bool ArrayReader::next(Item& item) {
  item.text.clear();
  item.problem.clear();
  while (place_ != Place::kEnd) {
    if (step(item)) return true;
  }
  return false;
}

bool ArrayReader::step(Item& item) {
  if (place_ == Place::kBefore) skip_mark();
  if (place_ == Place::kAfter) return after_array(item);
  const char byte = next_solid();
  if (byte == 0 && window().empty()) {
    file_ends(/*inside=*/false);
    return false;
  }
  if (place_ == Place::kBefore) {
    if (byte != '[') fail("{}: expected a JSON array", file_.path().string());
    consume(1);
    place_ = Place::kFirst;
    return false;
  }
  const bool ends = byte == ']' && place_ != Place::kValue;
  if (ends || (byte == ',' && place_ == Place::kBetween)) {
    consume(1);
    place_ = ends ? Place::kAfter : Place::kValue;
    return false;
  }
  if (place_ == Place::kBetween) {
    resume_after(item, fmt::format("expected ',' or ']' before it, got '{}'", byte));
    return true;
  }
  take_value(item);
  return place_ != Place::kEnd || !item.problem.empty();
}

bool ArrayReader::after_array(Item& item) {
  place_ = Place::kEnd;
  if (next_solid() == 0 && window().empty()) return false;
  item.problem = fmt::format("text after the array's end at byte {}", offset_ + 1);
  return true;
}

void ArrayReader::take_value(Item& item) {
  scan_.restart();
  bool too_long = false;
  for (std::string_view bytes = window(); !bytes.empty(); bytes = window()) {
    const auto [used, step] = scan_.scan(bytes);
    too_long = too_long || item.text.size() + used > max_value_bytes_;
    if (too_long) item.text.clear();
    if (!too_long) item.text.append(bytes.substr(0, used));
    consume(used);
    if (step == ValueScan::Step::kDamaged) return resume_after(item, scan_.problem());
    if (step == ValueScan::Step::kMore) continue;
    place_ = Place::kBetween;
    ++num_items_;
    if (too_long) item.problem = fmt::format("longer than {} bytes", max_value_bytes_);
    return;
  }
  file_ends(/*inside=*/true);
}

/// The search starts in the damaged value itself: a quote that is missing shows only later.
void ArrayReader::resume_after(Item& item, std::string reason) {
  ++num_items_;
  item.problem = fmt::format("damaged at byte {}: {}", offset_, reason);
  const std::string_view key = scan_.opening_key();
  if (num_items_ == 1 || key.empty()) {
    fail(
        "{}: record {} is {}\n"
        "  hint: where the next record begins cannot be told safely: repair the file there",
        file_.path().string(), num_items_, item.problem);
  }
  put_back(std::exchange(item.text, ""));
  if (find_opening()) {
    place_ = Place::kValue;
  } else {
    item.problem += "; no record is found after it";
    place_ = Place::kEnd;
  }
}

bool ArrayReader::find_opening() {
  OpeningMatch match(scan_.opening_key());
  for (std::string_view bytes = window(); !bytes.empty(); bytes = window()) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (!match.take(bytes[i])) continue;
      consume(i + 1);
      put_back(match.text());
      return true;
    }
    consume(bytes.size());
  }
  return false;
}

void ArrayReader::file_ends(bool inside) {
  place_ = Place::kEnd;
  cut_off_ = inside ? fmt::format("the file ends inside record {} at byte {}: {} records read",
                                  num_items_ + 1, offset_, num_items_)
                    : fmt::format(
                          "the file ends without the array's end at byte {}: {} records "
                          "read",
                          offset_, num_items_);
}

}  // namespace dflash::io
