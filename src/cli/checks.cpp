#include "cli/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

namespace dflash::cli {
namespace {

template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator integer_from(int64_t least, int64_t most) {
  const bool open = most == int64_t{1} << 40;
  const std::string range =
      open ? fmt::format("{} or more", least) : fmt::format("{} to {}", least, most);
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse<int64_t>(text);
        if (value && *value >= least && *value <= most) return std::string();
        return fmt::format("expected an integer, {}, got {}", range, text);
      },
      range);
}

CLI::Validator number_from(double least) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse<double>(text);
        if (value && std::isfinite(*value) && *value >= least) return std::string();
        return fmt::format("expected a number, {} or more, got {}", least, text);
      },
      fmt::format("{} or more", least));
}

CLI::Validator positive_share() {
  return CLI::Validator(
      [](std::string& text) {
        const auto value = parse<double>(text);
        if (value && *value > 0 && *value <= 1) return std::string();
        return fmt::format("expected a number above 0, at most 1, got {}", text);
      },
      "above 0, at most 1");
}

CLI::Validator distinct_blocks() {
  return CLI::Validator(
      [seen = std::make_shared<std::set<int64_t>>()](std::string& text) {
        const auto value = parse<int64_t>(text);
        if (!value || *value < 0) {
          return fmt::format("expected the number of a block, from 0 on, got {}", text);
        }
        if (seen->insert(*value).second) return std::string();
        return fmt::format("expected different blocks, got {} twice", text);
      },
      "different blocks");
}

}  // namespace dflash::cli
