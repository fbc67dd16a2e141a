#include "io/value_scan.h"

#include <fmt/format.h>

#include <utility>

namespace dflash::io {
namespace {

constexpr size_t kMaxDepth = 1 << 16;  // brackets kept to match; the parser allows far fewer
constexpr size_t kMaxKeyBytes = 256;

bool is_space(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/// Bytes of numbers and of true, false, null, the only ones outside strings beside punctuation.
bool is_scalar_byte(char byte) {
  return std::string_view("0123456789+-.eEtrufalsn").find(byte) != std::string_view::npos;
}

std::string shown(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  if (value >= 0x20 && value < 0x7f) return fmt::format("'{}'", byte);
  return fmt::format("byte 0x{:02x}", value);
}

}  // namespace

void ValueScan::restart() {
  place_ = Place::kStart;
  open_.clear();
  problem_.clear();
  key_.clear();
  own_key_.clear();
  at_first_key_ = in_first_key_ = own_key_inside_ = false;
}

ValueScan::Scanned ValueScan::scan(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool scalar_ends = place_ == Place::kScalar && !is_scalar_byte(bytes[i]);
    if (scalar_ends) return {i, done()};  // its end is no byte of it
    const Step step = take(bytes[i]);
    if (step != Step::kMore) return {i + 1, step};
  }
  return {bytes.size(), Step::kMore};
}

ValueScan::Step ValueScan::take(char byte) {
  switch (place_) {
    case Place::kStart:
      if (byte == '{' || byte == '[') return open(byte);
      if (byte != '"' && !is_scalar_byte(byte)) {
        return damaged(fmt::format("expected a value, got {}", shown(byte)));
      }
      place_ = byte == '"' ? Place::kString : Place::kScalar;
      return Step::kMore;
    case Place::kOutside:
      return take_outside(byte);
    case Place::kString:
    case Place::kEscape:
      return take_in_string(byte);
    case Place::kScalar:
      return Step::kMore;
  }
  return Step::kMore;
}

ValueScan::Step ValueScan::take_outside(char byte) {
  if (is_space(byte)) return Step::kMore;
  if (byte == '"') {
    start_string();
    return Step::kMore;
  }
  if (byte == '{' || byte == '[') return open(byte);
  if (byte == '}' || byte == ']') return close(byte);
  at_first_key_ = false;
  if (byte == ',' || byte == ':' || is_scalar_byte(byte)) return Step::kMore;
  return damaged(fmt::format("{} outside a string", shown(byte)));
}

ValueScan::Step ValueScan::take_in_string(char byte) {
  if (static_cast<unsigned char>(byte) < 0x20) {
    return damaged(fmt::format("{} in a string", shown(byte)));
  }
  const bool ends = place_ == Place::kString && byte == '"';
  if (in_first_key_ && !ends && key_.size() <= kMaxKeyBytes) key_.push_back(byte);
  if (!ends) {
    place_ = place_ == Place::kString && byte == '\\' ? Place::kEscape : Place::kString;
    return Step::kMore;
  }
  if (in_first_key_) end_key();
  place_ = Place::kOutside;
  return open_.empty() ? done() : Step::kMore;
}

ValueScan::Step ValueScan::open(char bracket) {
  if (open_.size() >= kMaxDepth) return damaged(fmt::format("nested deeper than {}", kMaxDepth));
  open_.push_back(bracket);
  place_ = Place::kOutside;
  at_first_key_ = bracket == '{';
  return Step::kMore;
}

ValueScan::Step ValueScan::close(char bracket) {
  if (open_.back() != (bracket == '}' ? '{' : '[')) {
    return damaged(fmt::format("'{}' closed by '{}'", open_.back(), bracket));
  }
  at_first_key_ = false;
  open_.pop_back();
  return open_.empty() ? done() : Step::kMore;
}

ValueScan::Step ValueScan::damaged(std::string why) {
  problem_ = std::move(why);
  return Step::kDamaged;
}

void ValueScan::start_string() {
  place_ = Place::kString;
  in_first_key_ = std::exchange(at_first_key_, false);
  key_.clear();
}

void ValueScan::end_key() {
  in_first_key_ = false;
  if (open_.size() == 1) {
    own_key_ = key_;
  } else if (key_ == own_key_) {
    own_key_inside_ = true;
  }
}

ValueScan::Step ValueScan::done() {
  const bool plain = !own_key_.empty() && own_key_.size() <= kMaxKeyBytes &&
                     own_key_.find_first_of("\\,{") == std::string::npos;
  if (opening_key_.empty()) opening_key_ = own_key_;
  if (!plain || own_key_inside_ || own_key_ != opening_key_) key_is_safe_ = false;
  return Step::kDone;
}

}  // namespace dflash::io
