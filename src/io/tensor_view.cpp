#include "io/tensor_view.h"

#include <array>

#include "base/error.h"
#include "io/checked.h"

namespace dflash::io {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Row, 10> kTable{{{Dtype::kF64, "F64", 8},
                                      {Dtype::kF32, "F32", 4},
                                      {Dtype::kF16, "F16", 2},
                                      {Dtype::kBF16, "BF16", 2},
                                      {Dtype::kI64, "I64", 8},
                                      {Dtype::kI32, "I32", 4},
                                      {Dtype::kI16, "I16", 2},
                                      {Dtype::kI8, "I8", 1},
                                      {Dtype::kU8, "U8", 1},
                                      {Dtype::kBool, "BOOL", 1}}};

const Row& row(Dtype dtype) {
  const auto index = static_cast<size_t>(dtype);
  DF_ASSERT(index < kTable.size() && kTable[index].dtype == dtype, "dtype={}", index);
  return kTable[index];
}

}  // namespace

int64_t dtype_bytes(Dtype dtype) {
  return row(dtype).bytes;
}

std::string_view dtype_name(Dtype dtype) {
  return row(dtype).name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const Row& entry : kTable) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

std::string dtype_names() {
  std::string names;
  for (const Row& entry : kTable) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

int64_t TensorView::numel() const {
  const auto numel = checked_numel(shape);
  DF_ASSERT(numel.has_value(), "tensor={}", name);
  return *numel;
}

}  // namespace dflash::io
