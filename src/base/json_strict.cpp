#include "base/json_strict.h"

#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace dflash {
namespace {

/// Sees every event of the parser and throws at the first one that breaks a limit.
template <typename Value>
class Guard {
 public:
  explicit Guard(const JsonLimits& limits) : limits_(limits) {}

  void see(typename Value::parse_event_t event, const Value& parsed) {
    using Event = typename Value::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      keys_.emplace_back();
      counts_.push_back(0);
      if (static_cast<int64_t>(keys_.size()) > limits_.max_depth) {
        fail("nested deeper than {} levels", limits_.max_depth);
      }
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
      counts_.pop_back();
    } else if (event == Event::key) {
      see_key(parsed.template get_ref<const std::string&>());
    }
  }

 private:
  void see_key(const std::string& key) {
    if (++num_keys_ > limits_.max_keys) fail("more than {} keys", limits_.max_keys);
    if (kOrdered && ++counts_.back() > limits_.max_ordered_keys) {
      fail("more than {} keys in one object", limits_.max_ordered_keys);
    }
    if (limits_.unique_keys && !keys_.back().insert(key).second) {
      fail("duplicate key \"{}\"", key.substr(0, 80));
    }
  }

  static constexpr bool kOrdered = std::is_same_v<Value, OrderedJson>;

  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;  // one set for each open object or array
  std::vector<uint64_t> counts_;             // of its keys
  uint64_t num_keys_ = 0;
};

/// The part of nlohmann's message after its "[json.exception.parse_error.101] " prefix.
std::string reason(const std::exception& error) {
  const std::string text = error.what();
  const size_t bracket = text.find("] ");
  return bracket == std::string::npos ? text : text.substr(bracket + 2);
}

template <typename Value>
Value parse_strictly(std::string_view text, const JsonLimits& limits) {
  // The parser takes a NUL byte for the end of the text and would ignore what follows.
  if (text.find('\0') != std::string_view::npos) fail("NUL byte in JSON text");
  Guard<Value> guard(limits);
  try {
    return Value::parse(text, [&](int, typename Value::parse_event_t event, Value& parsed) {
      guard.see(event, parsed);
      return true;
    });
  } catch (const Json::exception& error) {
    fail("{}", reason(error));
  }
}

}  // namespace

Json parse_json_strictly(std::string_view text, const JsonLimits& limits) {
  return parse_strictly<Json>(text, limits);
}

OrderedJson parse_ordered_json_strictly(std::string_view text, const JsonLimits& limits) {
  return parse_strictly<OrderedJson>(text, limits);
}

}  // namespace dflash
