// GGUF v3 reader (v2 has the same layout): metadata, tensors in PyTorch's dimension order, and the
// block formats listed in GgufType widened to float. LIBTORCH.md 7.2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dflash::io {

/// ggml's own type ids.
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kI64 = 27,  // ids, never widened
  kBF16 = 30
};

std::string_view gguf_type_name(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape;  // PyTorch order: [rows, columns]
  std::span<const std::byte> bytes;

  int64_t numel() const;
  /// All values as float, row-major; out.size() == numel().
  void widen(std::span<float> out) const;
  /// The ids of an I64 tensor. Error for any other type.
  std::vector<int64_t> integers() const;
};

/// A metadata value; signed integers become int64, unsigned ones uint64, floats double.
using GgufScalar = std::variant<bool, int64_t, uint64_t, double, std::string>;

class GgufFile {
 public:
  virtual ~GgufFile() = default;
  /// Errors: magic, version, counts, types, offsets, overlap or sizes that do not fit the file.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;
  const GgufTensor& get(std::string_view name) const;  // Error when absent

  bool has(std::string_view key) const;
  /// Errors name the key and the type found. `fallback` overloads return it only when absent.
  std::string string(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<bool> booleans(std::string_view key) const;

  /// All values at a key (a scalar: one), for copying them to another file. Error when absent.
  const std::vector<GgufScalar>& values(std::string_view key) const;
  bool is_array(std::string_view key) const;
  /// Keys that start with `prefix`, in alphabetical order.
  std::vector<std::string> keys(std::string_view prefix) const;

  const std::filesystem::path& path() const { return path_; }

 protected:
  std::filesystem::path path_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::vector<GgufScalar>, std::less<>>
      values_;  // arrays: many, scalars: one
  std::map<std::string, bool, std::less<>> is_array_;

 private:
  struct Getter;
};

}  // namespace dflash::io
