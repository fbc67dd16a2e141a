// The `loop` variable. Elements are drawn one at a time, at most one ahead, because a filter of the
// loop ({% for x in y if z %}) may depend on what the body does.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "text/jinja/value.h"

namespace dflash::text::jinja {

struct Loop {
  using Accepts = std::function<bool(const Value&)>;

  Loop(std::vector<Value> given, bool sized_source, int depth, Accepts filter)
      : items(std::move(given)), sized(sized_source), depth0(depth), accepts(std::move(filter)) {
    for (const Value& item : items) value_depth = std::max(value_depth, depth_of(item) + 1);
  }

  /// Moves to the next element; false at the end.
  bool advance() {
    before = std::move(current);
    current = after.has_value() ? std::move(after) : draw();
    after.reset();
    ++index0;
    return current.has_value();
  }
  /// The element that follows, empty at the end.
  const std::optional<Value>& peek() {
    if (!after.has_value()) after = draw();
    return after;
  }
  int64_t length() {
    if (known_length.has_value()) return *known_length;
    if (sized && !accepts) return *(known_length = static_cast<int64_t>(items.size()));
    std::vector<Value> rest;
    while (auto item = draw()) rest.push_back(std::move(*item));
    known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.has_value() ? 1 : 0);
    items = std::move(rest);
    next = 0;
    accepts = nullptr;
    return *known_length;
  }

  std::vector<Value> items;
  size_t next = 0;
  bool sized;  // the source has a length of its own
  int64_t index0 = -1;
  int depth0;
  int value_depth = 1;
  std::optional<Value> before, current, after;
  std::optional<int64_t> known_length;
  Accepts accepts;  // empty: all

 private:
  std::optional<Value> draw() {
    while (next < items.size()) {
      Value item = items[next++];
      if (!accepts || accepts(item)) return item;
    }
    return std::nullopt;
  }
};

}  // namespace dflash::text::jinja
