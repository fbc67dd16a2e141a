#include "data/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

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

}  // namespace dflash::data
