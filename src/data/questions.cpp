#include "data/questions.h"

#include "base/error.h"

namespace dflash::data {
namespace {

std::optional<Rejected> offer(const OrderedJson& record, const io::RecordPlace& place,
                              const TakeQuestion& take) {
  ParsedRow parsed = parse_prompt(record);
  if (auto* rejected = std::get_if<Rejected>(&parsed)) return std::move(*rejected);
  return take(std::move(std::get<Row>(parsed)), record, place);
}

[[noreturn]] void refuse(const std::filesystem::path& path, const Drops& drops) {
  std::string why;
  for (const auto& [reason, drop] : drops.by_reason()) {
    why += fmt::format("\n  {}: {} (the first: {})", reason, drop.count, drop.first);
  }
  fail(
      "no prompt in {}{}\n  hint: a record is {{\"prompt\": \"...\"}} or "
      "{{\"messages\": [{{\"role\": \"user\", \"content\": \"...\"}}]}}",
      path.string(), why);
}

}  // namespace

Drops read_questions(const std::filesystem::path& path, int64_t limit, const TakeQuestion& take) {
  Drops drops;
  int64_t taken = 0;
  const auto is_full = [&] { return limit > 0 && taken >= limit; };
  const io::RecordOptions options{
      .on_bad = io::OnBadLine::kSkip,
      .report = [&](const io::RecordPlace& place, const std::string& reason) {
        if (!is_full()) drops.add(fmt::format("broken {}", place.unit), place.str(), reason);
      }};
  const auto counts = io::read_records(path, options, [&](const auto& place, const auto& record) {
    if (is_full()) return;
    if (const auto rejected = offer(record, place, take)) {
      drops.add(*rejected, place.str());
    } else {
      taken += 1;
    }
  });
  if (!counts.cut_off.empty() && !is_full()) {
    drops.add("cut off at the end of the file", path.string(), counts.cut_off);
  }
  if (taken == 0) refuse(path, drops);
  drops.warn("records");
  return drops;
}

}  // namespace dflash::data
