// The strict parser: what ggml's own reader refuses is refused, and what would only exhaust memory.
#include "base/error.h"
#include "io/byte_cursor.h"
#include "io/checked.h"
#include "io/gguf.h"
#include "io/gguf_types.h"
#include "io/mapped_file.h"

namespace dflash::io {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535, kMaxTensorNameBytes = 64, kMaxDims = 4;
constexpr uint64_t kMaxArray = 1 << 24;  // elements; vocabularies and merges stay far below
constexpr uint64_t kMaxElements = 1ULL << 48;
constexpr uint32_t kMaxAlignment = 65536;

/// Value types of the format, by their numbers.
enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};
constexpr uint64_t kMinValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

class ParsedGguf final : public GgufFile {
 public:
  explicit ParsedGguf(const std::filesystem::path& path)
      : file_(MappedFile::open(path)), cursor_(file_->bytes(), path.string()) {
    path_ = path;
    read_header();
    for (uint64_t i = 0; i < num_values_; ++i) read_value_pair();
    refuse_split();
    for (uint64_t i = 0; i < num_tensors_; ++i) read_tensor_info();
    place_tensors();
    index_tensors();
  }

 private:
  void read_header() {
    constexpr std::string_view kMagic = "GGUF";
    const std::string& where = cursor_.where();
    if (cursor_.text(kMagic.size(), "magic") != kMagic) fail("not a GGUF file: {}", where);
    const auto version = cursor_.read<uint32_t>("version");
    if (version != 2 && version != 3) {
      const bool swapped = version == __builtin_bswap32(2) || version == __builtin_bswap32(3);
      fail("unsupported GGUF: {}: expected version 2 or 3, got {}", where,
           swapped ? "a big-endian file" : std::to_string(version));
    }
    num_tensors_ = cursor_.read<uint64_t>("number of tensors");
    num_values_ = cursor_.read<uint64_t>("number of keys");
    cursor_.require(num_tensors_, 8 + 4 + 4 + 8, "tensors");
    cursor_.require(num_values_, 8 + 4 + 1, "keys");
  }

  std::string read_name(uint64_t max_bytes, std::string_view what) {
    const auto size = cursor_.read<uint64_t>(what);
    if (size == 0 || size > max_bytes) {
      fail("damaged GGUF: {}: {}: expected 1 to {} bytes, got {}", cursor_.where(), what, max_bytes,
           size);
    }
    const auto name = cursor_.text(size, what);
    if (name.find('\0') != std::string_view::npos) {
      fail("damaged GGUF: {}: {}: NUL byte in it", cursor_.where(), what);
    }
    return std::string(name);
  }

  void read_value_pair() {
    const std::string key = read_name(kMaxKeyBytes, "key");
    const uint32_t type = read_value_type(key);
    std::vector<GgufScalar> values;
    uint64_t count = 1;
    uint32_t item_type = type;
    if (type == kArray) {
      item_type = read_value_type(key);
      count = cursor_.read<uint64_t>(key);
      if (item_type == kArray || count > kMaxArray) {
        fail("unsupported GGUF: {}: key {}: a nested array, or more than {} items", cursor_.where(),
             key, kMaxArray);
      }
    }
    cursor_.require(count, kMinValueBytes[item_type], key);
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(read_scalar(item_type, key));
    if (key == "general.alignment") set_alignment(type, values);
    if (!values_.emplace(key, std::move(values)).second) {
      fail("damaged GGUF: {}: key {} is there twice", cursor_.where(), key);
    }
    is_array_[key] = type == kArray;
  }

  uint32_t read_value_type(const std::string& key) {
    const auto type = cursor_.read<uint32_t>(key);
    if (type > kF64)
      fail("damaged GGUF: {}: key {}: unknown value type {}", cursor_.where(), key, type);
    return type;
  }

  GgufScalar read_scalar(uint32_t type, const std::string& key) {
    switch (type) {
      case kU8:
        return uint64_t{cursor_.read<uint8_t>(key)};
      case kI8:
        return int64_t{cursor_.read<int8_t>(key)};
      case kU16:
        return uint64_t{cursor_.read<uint16_t>(key)};
      case kI16:
        return int64_t{cursor_.read<int16_t>(key)};
      case kU32:
        return uint64_t{cursor_.read<uint32_t>(key)};
      case kI32:
        return int64_t{cursor_.read<int32_t>(key)};
      case kF32:
        return double{cursor_.read<float>(key)};
      case kU64:
        return cursor_.read<uint64_t>(key);
      case kI64:
        return cursor_.read<int64_t>(key);
      case kF64:
        return cursor_.read<double>(key);
      case kText:
        return std::string(cursor_.text(cursor_.read<uint64_t>(key), key));
      case kBool:
        break;
      default:
        DF_ASSERT(false, "type={}", type);
    }
    const auto byte = cursor_.read<uint8_t>(key);
    if (byte > 1) fail("damaged GGUF: {}: key {}: boolean {}", cursor_.where(), key, byte);
    return byte == 1;
  }

  void set_alignment(uint32_t type, const std::vector<GgufScalar>& values) {
    const uint64_t value = type == kU32 ? std::get<uint64_t>(values[0]) : 0;
    if (value < 8 || value > kMaxAlignment || (value & (value - 1)) != 0) {
      fail("damaged GGUF: {}: general.alignment: expected an unsigned power of two from 8 to {}",
           cursor_.where(), kMaxAlignment);
    }
    alignment_ = value;
  }

  void refuse_split() {
    if (integer("split.count", 1) > 1) {
      fail("unsupported GGUF: {}: one of {} parts\n  hint: merge the parts into one file first",
           cursor_.where(), integer("split.count"));
    }
  }

  [[noreturn]] void bad(const std::string& tensor, const std::string& what) {
    fail("damaged GGUF: {}: tensor {}: {}", cursor_.where(), tensor, what);
  }

  void read_tensor_info() {
    GgufTensor tensor;
    tensor.name = read_name(kMaxTensorNameBytes, "tensor name");
    const auto num_dims = cursor_.read<uint32_t>(tensor.name);
    if (num_dims > kMaxDims) bad(tensor.name, fmt::format("{} dimensions, at most 4", num_dims));
    uint64_t numel = 1;
    for (uint32_t i = 0; i < num_dims; ++i) {
      const auto dim = cursor_.read<uint64_t>(tensor.name);
      const auto product = checked_mul(numel, dim);
      if (dim == 0 || !product || *product > kMaxElements) {
        bad(tensor.name, fmt::format("dimension {} of {} elements", i, dim));
      }
      numel = *product;
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
    }
    tensor.type = read_tensor_type(tensor.name);
    const int64_t block = gguf_block(tensor.type).elements;
    if ((tensor.shape.empty() ? 1 : tensor.shape.back()) % block != 0) {
      bad(tensor.name, fmt::format("rows of {} elements do not divide into blocks of {}",
                                   tensor.shape.empty() ? 1 : tensor.shape.back(), block));
    }
    offsets_.push_back(cursor_.read<uint64_t>(tensor.name));
    tensors_.push_back(std::move(tensor));
  }

  GgufType read_tensor_type(const std::string& tensor) {
    const auto id = cursor_.read<uint32_t>(tensor);
    const auto type = gguf_type_from_id(id);
    if (!type) {
      fail(
          "unsupported GGUF: {}: tensor {}: expected one of {}, got type {}\n  hint: convert the "
          "model to one of these, for example Q8_0",
          cursor_.where(), tensor, gguf_type_names(), describe_gguf_type(id));
    }
    return *type;
  }

  /// As in ggml, tensors follow each other in the order of the list, each padded to the alignment.
  void place_tensors() {
    const auto bytes = file_->bytes();
    const uint64_t start = align(cursor_.position());
    uint64_t expected = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      GgufTensor& tensor = tensors_[i];
      const GgufBlock block = gguf_block(tensor.type);
      const uint64_t size = static_cast<uint64_t>(tensor.numel() / block.elements * block.bytes);
      if (offsets_[i] != expected) {
        bad(tensor.name,
            fmt::format("expected its bytes at offset {}, got {}", expected, offsets_[i]));
      }
      if (start > bytes.size() || expected > bytes.size() - start ||
          size > bytes.size() - start - expected) {
        bad(tensor.name, fmt::format("expected {} bytes at {}, the file has {}\n  hint: the file "
                                     "was cut short; fetch it again",
                                     size, start + expected, bytes.size()));
      }
      tensor.bytes = bytes.subspan(start + expected, size);
      expected = align(expected + size);
    }
  }

  /// Cannot wrap: both uses are bounded by the size of the file.
  uint64_t align(uint64_t offset) const { return (offset + alignment_ - 1) & ~(alignment_ - 1); }

  void index_tensors() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!index_.emplace(tensors_[i].name, i).second) bad(tensors_[i].name, "is there twice");
    }
  }

  std::shared_ptr<const MappedFile> file_;
  ByteCursor cursor_;
  uint64_t num_tensors_ = 0, num_values_ = 0, alignment_ = 32;
  std::vector<uint64_t> offsets_;
};

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  return std::make_shared<ParsedGguf>(path);
}

}  // namespace dflash::io
