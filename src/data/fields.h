// Fields of a JSON record, where one thing may stand under several names.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "base/json.h"

namespace dflash::data {

/// Why a record is no row: a short reason that is counted, and the detail of this record.
struct Rejected {
  std::string reason, detail;
};

/// Null where the field is absent or null.
const OrderedJson* field(const OrderedJson& record, const char* name);
/// The first that is there.
const OrderedJson* first_field(const OrderedJson& record, std::initializer_list<const char*> names);

/// A text, list or object with nothing in it.
bool is_empty(const OrderedJson& value);

/// One thing under one of several names; null where none is there. Of two that are there the one
/// with something in it is taken; two that say different things are no choice of ours: rejected.
std::optional<Rejected> one_of(const OrderedJson& record, std::initializer_list<const char*> names,
                               const OrderedJson*& taken);

/// A record's name: a text, or anything else as its JSON text; empty where the field is absent.
/// Rejected: a number beyond 64 bits, which is rounded, so that two could be one.
std::optional<Rejected> read_id(const OrderedJson& record, const char* name, std::string& id);

/// Whether a record or turn is kept out of training by its author: {"weight": 0}, {"train": false}
/// and the like.
bool is_untrained(const OrderedJson& holder);

}  // namespace dflash::data
