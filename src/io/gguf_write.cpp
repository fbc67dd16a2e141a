#include "io/gguf_write.h"

#include <limits>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "io/checked.h"
#include "io/gguf_types.h"

namespace dflash::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kAlignment = 32;
constexpr size_t kMaxTensorNameBytes = 64;  // ggml's own bound

// Value types of the format, by their numbers.
enum ValueType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kArray = 9 };

/// Bytes of the header; little-endian, as the format and every machine that this program runs on.
class Header {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view value) {
    put<uint64_t>(value.size());
    bytes_.append(value);
  }
  void raw(std::string_view value) { bytes_.append(value); }
  void pad() { bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0'); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Writes a value as its type's number, then its bytes; an array names its items' type first.
struct Put {
  Header& header;

  void operator()(bool value) const { scalar(kBool, static_cast<uint8_t>(value)); }
  void operator()(uint32_t value) const { scalar(kU32, value); }
  void operator()(float value) const { scalar(kF32, value); }
  void operator()(const std::string& value) const {
    header.put<uint32_t>(kText);
    header.text(value);
  }
  void operator()(const std::vector<bool>& values) const {
    array(kBool, values.size());
    for (const bool value : values) header.put(static_cast<uint8_t>(value));
  }
  void operator()(const std::vector<int32_t>& values) const {
    array(kI32, values.size());
    for (const int32_t value : values) header.put(value);
  }
  void operator()(const std::vector<float>& values) const {
    array(kF32, values.size());
    for (const float value : values) header.put(value);
  }
  void operator()(const std::vector<std::string>& values) const {
    array(kText, values.size());
    for (const std::string& value : values) header.text(value);
  }

 private:
  template <typename T>
  void scalar(ValueType type, T value) const {
    header.put<uint32_t>(type);
    header.put(value);
  }
  void array(ValueType type, uint64_t count) const {
    header.put<uint32_t>(kArray);
    header.put<uint32_t>(type);
    header.put(count);
  }
};

void check(const fs::path& path, const std::vector<GgufEntry>& entries,
           const std::vector<GgufTensor>& tensors) {
  std::set<std::string_view> names;
  for (const GgufEntry& entry : entries) {
    if (!names.insert(entry.key).second) {
      fail("cannot write {}: key {} is used twice", path.string(), entry.key);
    }
  }
  names.clear();
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name.size() > kMaxTensorNameBytes || !names.insert(tensor.name).second) {
      fail("cannot write {}: tensor name {} is too long or used twice", path.string(), tensor.name);
    }
    const GgufBlock block = gguf_block(tensor.type);
    const auto numel = checked_numel(tensor.shape);
    const auto size = numel && *numel > 0 && *numel % block.elements == 0
                          ? checked_mul(*numel / block.elements, block.bytes)
                          : std::nullopt;
    if (!size || *size != tensor.bytes.size()) {
      fail("cannot write {}: tensor {}: expected {} elements of {}, got {} bytes", path.string(),
           tensor.name, numel.value_or(-1), gguf_type_name(tensor.type), tensor.bytes.size());
    }
  }
}

uint64_t padded(uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

Header make_header(const std::vector<GgufEntry>& entries, const std::vector<GgufTensor>& tensors) {
  Header header;
  header.raw("GGUF");
  header.put<uint32_t>(3);
  header.put<uint64_t>(tensors.size());
  header.put<uint64_t>(entries.size());
  for (const GgufEntry& entry : entries) {
    header.text(entry.key);
    std::visit(Put{header}, entry.value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.text(tensor.name);
    header.put(static_cast<uint32_t>(tensor.shape.size()));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) {
      header.put(static_cast<uint64_t>(*dim));
    }
    header.put(static_cast<uint32_t>(tensor.type));
    header.put(offset);
    offset += padded(tensor.bytes.size());
  }
  header.pad();
  return header;
}

[[noreturn]] void does_not_fit(const GgufFile& file, const std::string& key) {
  fail("{}: key {}: a value does not fit 32 bits", file.path().string(), key);
}

template <typename To>
To narrowed(const GgufFile& file, const std::string& key, const GgufScalar& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    if (std::in_range<To>(*number)) return static_cast<To>(*number);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    if (std::in_range<To>(*number)) return static_cast<To>(*number);
  }
  does_not_fit(file, key);
}

GgufValue copy_scalar(const GgufFile& file, const std::string& key, const GgufScalar& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) return static_cast<float>(*number);
  return narrowed<uint32_t>(file, key, value);
}

GgufValue copy_array(const GgufFile& file, const std::string& key) {
  const std::vector<GgufScalar>& values = file.values(key);
  if (!values.empty() && std::holds_alternative<std::string>(values[0])) return file.strings(key);
  if (!values.empty() && std::holds_alternative<bool>(values[0])) {
    std::vector<bool> flags;
    for (const GgufScalar& value : values) flags.push_back(std::get<bool>(value));
    return flags;
  }
  if (!values.empty() && std::holds_alternative<double>(values[0])) {
    std::vector<float> numbers;
    for (const GgufScalar& value : values) {
      numbers.push_back(static_cast<float>(std::get<double>(value)));
    }
    return numbers;
  }
  std::vector<int32_t> numbers;
  for (const GgufScalar& value : values) numbers.push_back(narrowed<int32_t>(file, key, value));
  return numbers;
}

}  // namespace

std::vector<GgufEntry> copy_entries(const GgufFile& file, std::string_view prefix) {
  std::vector<GgufEntry> entries;
  for (const std::string& key : file.keys(prefix)) {
    entries.push_back({key, file.is_array(key) ? copy_array(file, key)
                                               : copy_scalar(file, key, file.values(key).at(0))});
  }
  return entries;
}

void write_gguf(const fs::path& path, const std::vector<GgufEntry>& entries,
                const std::vector<GgufTensor>& tensors) {
  check(path, entries, tensors);
  const Header header = make_header(entries, tensors);
  write_atomically(path, [&](int fd) {
    const std::string zeros(kAlignment, '\0');
    write_all(fd, header.bytes().data(), header.bytes().size(), path);
    for (const GgufTensor& tensor : tensors) {
      const uint64_t size = tensor.bytes.size();
      write_all(fd, tensor.bytes.data(), size, path);
      write_all(fd, zeros.data(), padded(size) - size, path);
    }
  });
}

}  // namespace dflash::io
