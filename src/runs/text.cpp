#include "runs/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace dflash::runs {

std::string format_time(std::time_t time) {
  std::tm local = {};
  if (time == 0 || ::localtime_r(&time, &local) == nullptr) return "-";
  std::array<char, 32> text = {};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local);
  return {text.data(), size};
}

std::string format_number(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:#.4g}", value);
}

std::string format_count(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count < 10000) return fmt::format("{}", count);
  if (count < 1000000) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.2f}M", value / 1e6);
}

std::string printable(const std::string& text) {
  const std::string quoted =
      Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  const std::string inner = quoted.substr(1, quoted.size() - 2);
  std::string out;
  for (size_t i = 0; i < inner.size(); ++i) {
    const auto byte = static_cast<unsigned char>(inner[i]);
    const bool control = byte == 0xC2 && i + 1 < inner.size() &&
                         static_cast<unsigned char>(inner[i + 1]) < 0xA0;  // U+0080..U+009F
    if (control) {
      out += fmt::format("\\u00{:02x}", static_cast<unsigned char>(inner[++i]));
    } else if (byte == 0x7F) {
      out += "\\u007f";
    } else if (inner[i] == '\\' && i + 1 < inner.size() &&
               (inner[i + 1] == '"' || inner[i + 1] == '\\')) {
      out += inner[++i];
    } else {
      out += inner[i];
    }
  }
  return out;
}

std::string format_value(const Json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return text.empty() ? "\"\"" : printable(text);
  }
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return printable(value.dump());
}

std::string keep_end(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t begin = text.size() - (most - 2);
  while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;  // no half character
  return ".." + text.substr(begin);
}

std::string wrapped(std::string_view text, size_t indent) {
  constexpr size_t kColumns = 80;
  std::string out, line;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line.assign(indent, ' ');
    } else if (begin > 0) {
      line += ' ';
    }
    line += word;
    begin = end + 1;
  }
  return out + line + "\n";
}

int64_t num_not_applied(const TrainingRun& run) {
  return std::count_if(run.steps.begin(), run.steps.end(),
                       [](const Step& step) { return !step.applied; });
}

std::vector<double> slot_accuracy_at_end(const TrainingRun& run) {
  std::vector<double> sums;
  const auto size = static_cast<int64_t>(run.steps.size());
  const int64_t begin = std::max<int64_t>(size - kLastSteps, 0);
  for (int64_t i = begin; i < size; ++i) {
    const auto& shares = run.steps[i].slot_accuracy;
    sums.resize(std::max(sums.size(), shares.size()), 0.0);
    for (size_t k = 0; k < shares.size(); ++k) sums[k] += shares[k];
  }
  for (double& sum : sums) sum /= static_cast<double>(std::max<int64_t>(size - begin, 1));
  return sums;
}

}  // namespace dflash::runs
