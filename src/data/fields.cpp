#include "data/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <string_view>

namespace dflash::data {

const OrderedJson* field(const OrderedJson& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

const OrderedJson* first_field(const OrderedJson& record,
                               std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const OrderedJson* found = field(record, name)) return found;
  }
  return nullptr;
}

bool is_empty(const OrderedJson& value) {
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
}

std::optional<Rejected> one_of(const OrderedJson& record, std::initializer_list<const char*> names,
                               const OrderedJson*& taken) {
  taken = nullptr;
  for (const char* name : names) {
    const OrderedJson* found = field(record, name);
    if (!found) continue;
    if (taken && !is_empty(*taken) && !is_empty(*found) && *taken != *found) {
      return Rejected{fmt::format("{} that differ", fmt::join(names, " and ")), name};
    }
    if (!taken || is_empty(*taken)) taken = found;
  }
  return std::nullopt;
}

std::optional<Rejected> read_id(const OrderedJson& record, const char* name, std::string& id) {
  const OrderedJson* given = field(record, name);
  if (!given) return std::nullopt;
  constexpr double kExact = 9007199254740992;  // 2^53
  if (given->is_number_float() && !(std::abs(given->get<double>()) < kExact)) {
    return Rejected{"an id that is rounded",
                    fmt::format("{}: expected a text or a number of at most 64 bits, got {}", name,
                                given->dump())};
  }
  id = given->is_string() ? given->get<std::string>() : given->dump();
  return std::nullopt;
}

bool is_untrained(const OrderedJson& holder) {
  if (!holder.is_object()) return false;
  for (const char* name : {"weight", "loss_weight", "train", "loss"}) {
    const OrderedJson* value = field(holder, name);
    if (!value) continue;
    const bool number = value->is_number() && std::string_view(name) != "loss";  // a metric, maybe
    if (*value == false || *value == "0" || *value == "false") return true;
    if (number && value->get<double>() <= 0) return true;
  }
  return false;
}

}  // namespace dflash::data
