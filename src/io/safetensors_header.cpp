#include "io/safetensors_header.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json_strict.h"
#include "io/checked.h"

namespace dflash::io {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's bound
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr size_t kMaxNameBytes = 65535;

/// A tensor of the header, before its bytes are known to be right.
struct Entry {
  TensorView view;
  uint64_t begin = 0, end = 0;
};

class Parser {
 public:
  explicit Parser(const MappedFile& file) : file_(file), where_(file.path().string()) {}

  ParsedSafetensors parse() {
    const Json header = read_header();
    ParsedSafetensors result;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        result.metadata = read_metadata(value);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
    check_layout(entries);
    result.tensors.reserve(entries.size());
    for (Entry& entry : entries) result.tensors.push_back(std::move(entry.view));
    return result;
  }

 private:
  Json read_header() {
    const auto bytes = file_.bytes();
    uint64_t header_bytes = 0;
    if (bytes.size() < sizeof(header_bytes)) {
      fail("damaged safetensors: {}: expected at least 8 bytes, got {}", where_, bytes.size());
    }
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    if (header_bytes > kMaxHeaderBytes) {
      fail(
          "damaged safetensors: {}: header of {} bytes, at most {} are allowed\n  hint: is this a "
          "safetensors file?",
          where_, header_bytes, kMaxHeaderBytes);
    }
    if (header_bytes > bytes.size() - sizeof(header_bytes)) {
      fail(
          "damaged safetensors: {}: expected a header of {} bytes, got {}\n  hint: the file was "
          "cut short; fetch or write it again",
          where_, header_bytes, bytes.size() - sizeof(header_bytes));
    }
    data_ = bytes.subspan(sizeof(header_bytes) + header_bytes);
    return parse_text({reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes),
                       static_cast<size_t>(header_bytes)});
  }

  Json parse_text(std::string_view text) {
    if (text.empty() || text.front() != '{') {
      fail("damaged safetensors: {}: the header does not start with '{{'", where_);
    }
    try {
      return parse_json_strictly(text, {.max_depth = 4, .max_keys = 8 * kMaxTensors});
    } catch (const Error& error) {
      fail("damaged safetensors: {}: header: {}", where_, error.what());
    }
  }

  Metadata read_metadata(const Json& value) {
    if (!value.is_object()) fail("damaged safetensors: {}: __metadata__ is no object", where_);
    Metadata metadata;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail("damaged safetensors: {}: __metadata__.{}: expected a string, got {}", where_, key,
             text.type_name());
      }
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  [[noreturn]] void bad(const std::string& name, const std::string& what) {
    fail("damaged safetensors: {}: tensor {}: {}", where_, name, what);
  }

  uint64_t read_size(const std::string& name, const Json& value) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
      bad(name, "expected a size below 2^63, got " + value.dump());
    }
    return value.get<uint64_t>();
  }

  const Json& field(const std::string& name, const Json& value, const char* key) {
    if (!value.is_object() || !value.contains(key)) bad(name, fmt::format("no \"{}\"", key));
    return value.at(key);
  }

  Entry read_entry(const std::string& name, const Json& value) {
    if (name.size() > kMaxNameBytes) bad(name.substr(0, 80) + "...", "name too long");
    if (++num_tensors_ > kMaxTensors) fail("damaged safetensors: {}: too many tensors", where_);
    Entry entry;
    entry.view.name = name;
    entry.view.dtype = read_dtype(name, field(name, value, "dtype"));
    const Json& shape = field(name, value, "shape");
    if (!shape.is_array()) bad(name, "\"shape\" is no array");
    for (const Json& dim : shape) {
      entry.view.shape.push_back(static_cast<int64_t>(read_size(name, dim)));
    }
    const Json& offsets = field(name, value, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) bad(name, "\"data_offsets\" is no pair");
    entry.begin = read_size(name, offsets[0]);
    entry.end = read_size(name, offsets[1]);
    return entry;
  }

  Dtype read_dtype(const std::string& name, const Json& value) {
    const auto dtype = value.is_string() ? dtype_from_name(value.get_ref<const std::string&>())
                                         : std::optional<Dtype>();
    if (!dtype) {
      fail(
          "unsupported dtype: {}: tensor {}: expected one of {}, got {}\n  hint: convert the "
          "checkpoint, for example to BF16",
          where_, name, dtype_names(), value.dump());
    }
    return *dtype;
  }

  /// Sorted by offset, the tensors must tile the data without hole or overlap, to its last byte.
  void check_layout(std::vector<Entry>& entries) {
    uint64_t cursor = 0;
    for (Entry& entry : entries) {
      TensorView& view = entry.view;
      const auto numel = checked_numel(view.shape);
      const auto size = numel ? checked_mul(*numel, dtype_bytes(view.dtype)) : std::nullopt;
      if (!size) bad(view.name, "its shape has more than 2^63 elements");
      if (entry.begin != cursor || entry.end < entry.begin) {
        bad(view.name, fmt::format("expected its bytes to start at {}, got {} to {}", cursor,
                                   entry.begin, entry.end));
      }
      if (entry.end - entry.begin != *size) {
        bad(view.name, fmt::format("expected {} bytes for its shape and dtype, got {}", *size,
                                   entry.end - entry.begin));
      }
      if (entry.end > data_.size()) {
        bad(view.name,
            fmt::format("its bytes end at {}, the file's at {}\n  hint: the file was cut "
                        "short; fetch or write it again",
                        entry.end, data_.size()));
      }
      view.bytes = data_.subspan(entry.begin, *size);
      cursor = entry.end;
    }
    if (cursor != data_.size()) {
      fail("damaged safetensors: {}: expected {} bytes of tensors, got {}", where_, cursor,
           data_.size());
    }
  }

  const MappedFile& file_;
  std::string where_;
  std::span<const std::byte> data_;
  uint64_t num_tensors_ = 0;
};

}  // namespace

ParsedSafetensors parse_safetensors(const MappedFile& file) {
  return Parser(file).parse();
}

}  // namespace dflash::io
