#include "io/gguf_types.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace dflash::io {
namespace {

struct Row {
  GgufType type;
  std::string_view name;
  GgufBlock block;
};

constexpr std::array<Row, 12> kSupported{{{GgufType::kF32, "F32", {1, 4}},
                                          {GgufType::kF16, "F16", {1, 2}},
                                          {GgufType::kBF16, "BF16", {1, 2}},
                                          {GgufType::kQ4_0, "Q4_0", {32, 18}},
                                          {GgufType::kQ4_1, "Q4_1", {32, 20}},
                                          {GgufType::kQ5_0, "Q5_0", {32, 22}},
                                          {GgufType::kQ5_1, "Q5_1", {32, 24}},
                                          {GgufType::kQ8_0, "Q8_0", {32, 34}},
                                          {GgufType::kQ4_K, "Q4_K", {256, 144}},
                                          {GgufType::kQ5_K, "Q5_K", {256, 176}},
                                          {GgufType::kQ6_K, "Q6_K", {256, 210}},
                                          {GgufType::kI64, "I64", {1, 8}}}};

/// Names of ids that are not supported, so that an error can say what the file holds.
constexpr std::array<std::pair<uint32_t, std::string_view>, 23> kOthers{{
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {28, "F64"},   {29, "IQ1_M"},   {34, "TQ1_0"},
    {35, "TQ2_0"},   {39, "MXFP4"}, {40, "NVFP4"},  {41, "Q1_0"},  {42, "Q2_0"},
}};

const Row* find_row(uint32_t id) {
  for (const Row& row : kSupported) {
    if (static_cast<uint32_t>(row.type) == id) return &row;
  }
  return nullptr;
}

const Row& row_of(GgufType type) {
  const Row* row = find_row(static_cast<uint32_t>(type));
  DF_ASSERT(row != nullptr, "type={}", static_cast<uint32_t>(type));
  return *row;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return row_of(type).name;
}

GgufBlock gguf_block(GgufType type) {
  return row_of(type).block;
}

std::optional<GgufType> gguf_type_from_id(uint32_t id) {
  const Row* row = find_row(id);
  return row == nullptr ? std::nullopt : std::optional(row->type);
}

std::string describe_gguf_type(uint32_t id) {
  if (const Row* row = find_row(id)) return fmt::format("{} ({})", row->name, id);
  for (const auto& [other, name] : kOthers) {
    if (other == id) return fmt::format("{} ({})", name, id);
  }
  return fmt::format("({})", id);
}

std::string gguf_type_names() {
  std::string names;
  for (const Row& row : kSupported) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1.0p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t widened = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

}  // namespace dflash::io
