// GGUF: agreement with the gguf package (metadata, every block format), and every way to be
// damaged.
#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "files_for_tests.h"
#include "io/safetensors.h"
#include "support/memory_file.h"
#include "support/temp_folder.h"

namespace dflash::io {
namespace {

namespace fs = std::filesystem;
using dflash::testing::error_of;
using dflash::testing::gguf_bytes;
using dflash::testing::gguf_head;
using dflash::testing::gguf_info;
using dflash::testing::gguf_text;
using dflash::testing::gguf_u32;
using dflash::testing::MemoryFile;
using dflash::testing::raw;
using dflash::testing::read_file;
using dflash::testing::source_path;
using dflash::testing::TempFolder;
using dflash::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const GgufFile> golden() {
  return GgufFile::open(source_path("tests/golden/io/types.gguf"));
}

std::vector<float> widened(const GgufTensor& tensor) {
  std::vector<float> out(tensor.numel());
  tensor.widen(out);
  return out;
}

TEST(Gguf, MetadataOfEveryType) {
  const auto file = golden();
  EXPECT_EQ(file->string("general.architecture"), "llama");
  EXPECT_EQ(file->integer("test.u8"), 255);
  EXPECT_EQ(file->integer("test.i8"), -128);
  EXPECT_EQ(file->integer("test.u16"), 65535);
  EXPECT_EQ(file->integer("test.i16"), -32768);
  EXPECT_EQ(file->integer("test.u32"), 4294967295);
  EXPECT_EQ(file->integer("test.i32"), -2147483648LL);
  EXPECT_EQ(file->integer("test.i64"), INT64_MIN);
  EXPECT_EQ(file->number("test.f32"), 0.5);
  EXPECT_EQ(file->number("test.f64"), -1e300);
  EXPECT_EQ(file->number("test.u8"), 255.0);
  EXPECT_TRUE(file->boolean("test.yes", false));
  EXPECT_FALSE(file->boolean("test.no", true));
  EXPECT_TRUE(file->boolean("absent", true));
  EXPECT_EQ(file->integer("absent", 3), 3);
  EXPECT_EQ(file->number("absent", 0.25), 0.25);
  EXPECT_THAT(file->strings("test.strings"), ElementsAre("a", "", "zwölf", "<|im_start|>"));
  EXPECT_THAT(file->integers("test.integers"), ElementsAre(1, -2, 3));
}

TEST(Gguf, WrongTypesAndAbsentKeysAreNamed) {
  const auto file = golden();
  EXPECT_THAT(error_of<Error>([&] { file->integer("test.u64"); }), HasSubstr("test.u64"));
  EXPECT_THAT(error_of<Error>([&] { file->integer("test.f32"); }), HasSubstr("got a number"));
  EXPECT_THAT(error_of<Error>([&] { file->integer("test.f32", 1); }), HasSubstr("got a number"));
  EXPECT_THAT(error_of<Error>([&] { file->string("test.strings"); }),
              HasSubstr("array of 4 items"));
  EXPECT_THAT(error_of<Error>([&] { file->strings("test.u8"); }), HasSubstr("got an integer"));
  EXPECT_THAT(error_of<Error>([&] { file->integers("test.floats"); }), HasSubstr("item 0"));
  EXPECT_THAT(error_of<Error>([&] { file->string("absent"); }), HasSubstr("missing key"));
  EXPECT_THAT(error_of<Error>([&] { file->get("plane"); }), HasSubstr("names are plain"));
}

TEST(Gguf, ShapesAreInPyTorchOrder) {
  const auto file = golden();
  EXPECT_THAT(file->get("cube").shape, ElementsAre(2, 3, 4));
  EXPECT_THAT(file->get("vector").shape, ElementsAre(5));
  EXPECT_THAT(file->get("Q6_K").shape, ElementsAre(2, 256));
  EXPECT_THAT(widened(file->get("vector")), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(widened(file->get("cube"))[23], 23.0F);
}

class GgufWiden : public ::testing::TestWithParam<const char*> {};

/// The package computes in float too; formats with one multiplication must agree to the bit, the
/// others to one rounding of their larger term (d*q and the minimum), hence the bound.
TEST_P(GgufWiden, AgreesWithTheGgufPackage) {
  const auto file = golden();
  const auto expected = Checkpoint::open(source_path("tests/golden/io/types_expected.safetensors"));
  const GgufTensor& tensor = file->get(GetParam());
  const TensorView& want = expected->get(GetParam());
  ASSERT_EQ(tensor.shape, want.shape);
  const std::vector<float> got = widened(tensor);
  ASSERT_EQ(got.size() * sizeof(float), want.bytes.size());
  for (size_t i = 0; i < got.size(); ++i) {
    float value = 0;
    std::memcpy(&value, want.bytes.data() + i * sizeof(float), sizeof(float));
    if (value == got[i]) continue;
    ASSERT_LE(std::abs(got[i] - value), 2e-6F * std::max(1.0F, std::abs(value)))
        << i << " " << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GgufWiden,
                         ::testing::Values("plain", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0",
                                           "Q5_1", "Q4_K", "Q5_K", "Q6_K"));

TEST(Gguf, EveryPrefixIsACleanError) {
  const TempFolder folder;
  const fs::path path = folder / "cut.gguf";
  const std::string header = gguf_head(2, 2) + gguf_u32("general.alignment", 64) +
                             gguf_text("words") + raw<uint32_t>(9) + raw<uint32_t>(8) +
                             raw<uint64_t>(2) + gguf_text("ab") + gguf_text("") +
                             gguf_info("a", {4, 2}, 0, 0) + gguf_info("b", {32}, 2, 64);
  const std::string whole = gguf_bytes(header, std::string(64 + 18, 'x'), 64);
  for (size_t size = 0; size < whole.size(); ++size) {
    const MemoryFile cut(std::string_view(whole).substr(0, size));
    EXPECT_THROW(GgufFile::open(cut.path()), Error) << size;
  }
  write_file(path, whole);
  const auto file = GgufFile::open(path);
  EXPECT_THAT(file->get("a").shape, ElementsAre(2, 4));
  EXPECT_THAT(file->strings("words"), ElementsAre("ab", ""));
}

struct Damage {
  const char* name;
  std::string bytes;
  std::string message;
};

class GgufDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(GgufDamage, IsNamed) {
  const TempFolder folder;
  const fs::path path = folder / "bad.gguf";
  write_file(path, GetParam().bytes);
  const std::string message = error_of<Error>([&] { GgufFile::open(path); });
  EXPECT_THAT(message, HasSubstr(GetParam().message));
  EXPECT_THAT(message, HasSubstr("bad.gguf"));
}

/// A file with one tensor info and 64 bytes of data.
std::string one(const std::string& info) {
  return gguf_bytes(gguf_head(1, 0) + info, std::string(64, 'x'));
}

std::string two(const std::string& first, const std::string& second) {
  return gguf_bytes(gguf_head(2, 0) + first + second, std::string(64, 'x'));
}

/// A file with one key and value, and room behind it.
std::string key(const std::string& name, uint32_t type, const std::string& value) {
  return gguf_head(0, 1) + gguf_text(name) + raw(type) + value + std::string(64, '\0');
}

constexpr uint64_t kHuge = UINT64_MAX;

INSTANTIATE_TEST_SUITE_P(
    Table, GgufDamage,
    ::testing::Values(  // EX-18: what crafted files did to other readers
        Damage{"magic", "GGML" + std::string(100, '\0'), "not a GGUF"},
        Damage{"version_1", gguf_head(0, 0, 1), "got 1"},
        Damage{"version_4", gguf_head(0, 0, 4), "got 4"},
        Damage{"big_endian", gguf_head(0, 0, 0x03000000), "big-endian"},
        Damage{"tensor_count", gguf_head(kHuge, 0) + std::string(99, 'x'), "tensors at byte"},
        Damage{"key_count", gguf_head(0, kHuge / 2) + std::string(99, 'x'), "keys at byte"},
        Damage{"key_length", gguf_head(0, 1) + raw(kHuge) + std::string(99, 'x'), "1 to 65535"},
        Damage{"key_empty", key("", 0, "x"), "1 to 65535"},
        Damage{"key_nul", key(std::string("a\0b", 3), 0, "x"), "NUL byte"},
        Damage{"value_type", key("k", 13, "x"), "unknown value type 13"},
        Damage{"boolean_2", key("k", 7, "\2"), "boolean 2"},
        Damage{"text_length", key("k", 8, raw(kHuge) + "x"), "left"},
        Damage{"array_length", key("k", 9, raw<uint32_t>(0) + raw(kHuge)), "more than"},
        Damage{"array_too_long", key("k", 9, raw<uint32_t>(10) + raw<uint64_t>(1000)), "left"},
        Damage{"array_texts", key("k", 9, raw<uint32_t>(8) + raw<uint64_t>(1 << 20)), "left"},
        Damage{"array_nested", key("k", 9, raw<uint32_t>(9) + raw<uint64_t>(1)), "nested array"},
        Damage{"array_type", key("k", 9, raw<uint32_t>(99) + raw<uint64_t>(1)), "value type 99"},
        Damage{"key_twice", gguf_head(0, 2) + gguf_u32("k", 1) + gguf_u32("k", 1), "there twice"},
        Damage{"alignment_0", gguf_head(0, 1) + gguf_u32("general.alignment", 0), "power of two"},
        Damage{"alignment_48", gguf_head(0, 1) + gguf_u32("general.alignment", 48), "power of two"},
        Damage{"alignment_4", gguf_head(0, 1) + gguf_u32("general.alignment", 4), "power of two"},
        Damage{"alignment_2_31", gguf_head(0, 1) + gguf_u32("general.alignment", 1U << 31),
               "power of two"},
        Damage{"alignment_text", key("general.alignment", 8, gguf_text("32")), "power of two"},
        Damage{"split", gguf_head(0, 1) + gguf_u32("split.count", 3), "one of 3 parts"},
        Damage{"name_long", one(gguf_info(std::string(65, 'n'), {4}, 0, 0)), "1 to 64"},
        Damage{"name_twice", two(gguf_info("a", {4}, 0, 0), gguf_info("a", {4}, 0, 32)), "twice"},
        Damage{"five_dims", one(gguf_info("t", {1, 1, 1, 1, 1}, 0, 0)), "5 dimensions"},
        Damage{"dims_2_32", one(gguf_text("t") + raw<uint32_t>(UINT32_MAX)), "dimensions"},
        Damage{"zero_dim", one(gguf_info("t", {4, 0}, 0, 0)), "dimension 1 of 0"},
        Damage{"product_wraps", one(gguf_info("t", {1ULL << 32, 1ULL << 32, 4}, 0, 0)),
               "dimension 1"},
        Damage{"product_2_49", one(gguf_info("t", {1ULL << 49}, 0, 0)), "dimension 0"},
        Damage{"dims_int64_max", one(gguf_info("t", {INT64_MAX, 2}, 0, 0)), "dimension 0"},
        Damage{"type_unsupported", one(gguf_info("t", {256}, 10, 0)), "got type Q2_K (10)"},
        Damage{"type_unknown", one(gguf_info("t", {32}, 0xffffffff, 0)), "(4294967295)"},
        Damage{"type_removed", one(gguf_info("t", {32}, 4, 0)), "(4)"},
        Damage{"partial_block", one(gguf_info("t", {33}, 2, 0)), "blocks of 32"},
        Damage{"scalar_block", one(gguf_info("t", {}, 8, 0)), "blocks of 32"},
        Damage{"not_aligned", one(gguf_info("t", {4}, 0, 8)), "offset 0, got 8"},
        Damage{"overlap", two(gguf_info("a", {16}, 0, 0), gguf_info("b", {4}, 0, 32)),
               "tensor b: expected its bytes at offset 64, got 32"},
        Damage{"offset_huge", two(gguf_info("a", {8}, 0, 0), gguf_info("b", {4}, 0, kHuge - 31)),
               "offset 32"},
        Damage{"too_large", one(gguf_info("t", {17}, 0, 0)), "expected 68 bytes"},
        Damage{"far_too_large", one(gguf_info("t", {1ULL << 48}, 0, 0)), "the file has"}),
    [](const auto& info) { return info.param.name; });

TEST(Gguf, VersionTwoAndScalarsOpen) {
  const TempFolder folder;
  const fs::path path = folder / "v2.gguf";
  write_file(path, gguf_bytes(gguf_head(1, 0, 2) + gguf_info("s", {}, 0, 0), raw(2.5F)));
  EXPECT_THAT(widened(GgufFile::open(path)->get("s")), ElementsAre(2.5F));
  write_file(path, gguf_head(0, 0));
  EXPECT_TRUE(GgufFile::open(path)->tensors().empty());
}

TEST(Gguf, SmolLM2Opens) {
  const fs::path path = source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(path)) GTEST_SKIP() << "no " << path;
  const auto file = GgufFile::open(path);
  EXPECT_EQ(file->string("general.architecture"), "llama");
  EXPECT_EQ(file->integer("llama.block_count"), 30);
  EXPECT_EQ(file->strings("tokenizer.ggml.tokens").size(), 49152U);
  EXPECT_THAT(file->get("token_embd.weight").shape, ElementsAre(49152, 576));
  EXPECT_EQ(file->get("blk.0.attn_q.weight").type, GgufType::kQ4_1);
  for (const float value : widened(file->get("blk.29.ffn_down.weight"))) {
    ASSERT_LT(std::abs(value), 10.0F);
  }
}

}  // namespace
}  // namespace dflash::io
