// The GGUF writer: read back by our reader value for value; the golden file of the gguf package
// copied key for key; what it refuses. That ggml reads it: tests/peers.
#include "io/gguf_write.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "support/temp_folder.h"

namespace dflash::io {
namespace {

using testing::TempFolder;

GgufTensor view(const std::string& name, GgufType type, std::vector<int64_t> shape,
                const void* data, size_t size) {
  return {name, type, std::move(shape), {static_cast<const std::byte*>(data), size}};
}

TEST(GgufWrite, EveryTypeComesBack) {
  TempFolder folder;
  const std::vector<float> matrix = {1.5F, -2.0F, 0.0F, 4.0F, 5.0F, -0.0F};
  const std::vector<uint16_t> bf16 = {0x3F80, 0xC000, 0x4049};
  const std::vector<int64_t> ids = {7, 0, 1LL << 40};
  const std::vector<GgufEntry> entries = {
      {"general.architecture", std::string("dflash")},
      {"a.flag", true},
      {"a.count", uint32_t{4294967295U}},
      {"a.number", 0.25F},
      {"a.flags", std::vector<bool>{true, false, true}},
      {"a.ids", std::vector<int32_t>{1, -2, 3}},
      {"a.numbers", std::vector<float>{0.5F, -1.0F}},
      {"a.texts", std::vector<std::string>{"", "zw\xC3\xB6lf", std::string("a\0b", 3)}}};
  write_gguf(folder / "x.gguf", entries,
             {view("m", GgufType::kF32, {2, 3}, matrix.data(), 24),
              view("v", GgufType::kBF16, {3}, bf16.data(), 6),
              view("d2t", GgufType::kI64, {3}, ids.data(), 24)});
  const auto file = GgufFile::open(folder / "x.gguf");
  EXPECT_EQ(file->string("general.architecture"), "dflash");
  EXPECT_TRUE(file->boolean("a.flag", false));
  EXPECT_EQ(file->integer("a.count"), 4294967295);
  EXPECT_EQ(file->number("a.number"), 0.25);
  EXPECT_EQ(file->integers("a.ids"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(file->strings("a.texts").at(2), std::string("a\0b", 3));
  EXPECT_EQ(file->values("a.flags").size(), 3u);
  EXPECT_EQ(file->get("m").shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> got(6);
  file->get("m").widen(got);
  EXPECT_EQ(got, matrix);
  got.resize(3);
  file->get("v").widen(got);
  EXPECT_EQ(got, (std::vector<float>{1.0F, -2.0F, 3.140625F}));
  EXPECT_EQ(file->get("d2t").integers(), ids);
  EXPECT_THROW(file->get("v").integers(), Error);
  EXPECT_THROW(file->get("d2t").widen(got), Error);
}

TEST(GgufWrite, CopiedEntriesEqualTheirs) {
  const auto golden = GgufFile::open(testing::source_path("tests/golden/io/types.gguf"));
  TempFolder folder;
  EXPECT_THROW(copy_entries(*golden, "test.u64"), Error);  // u64's largest does not fit
  std::vector<GgufEntry> entries = copy_entries(*golden, "test.s");
  for (const char* key : {"test.yes", "test.integers", "test.floats", "test.u32", "test.f32"}) {
    for (GgufEntry& entry : copy_entries(*golden, key)) entries.push_back(std::move(entry));
  }
  ASSERT_EQ(entries.size(), 6u);
  write_gguf(folder / "copy.gguf", entries, {});
  const auto copy = GgufFile::open(folder / "copy.gguf");
  for (const GgufEntry& entry : entries) {
    EXPECT_EQ(copy->values(entry.key), golden->values(entry.key)) << entry.key;
    EXPECT_EQ(copy->is_array(entry.key), golden->is_array(entry.key)) << entry.key;
  }
}

TEST(GgufWrite, RefusesWhatReadersRefuseAndKeepsTheOldFile) {
  TempFolder folder;
  const float one = 1.0F;
  const auto path = folder / "x.gguf";
  write_gguf(path, {}, {view("a", GgufType::kF32, {1}, &one, 4)});
  const std::string before = testing::read_file(path);
  EXPECT_THROW(write_gguf(path, {}, {view("a", GgufType::kF32, {2}, &one, 4)}), Error);
  EXPECT_THROW(write_gguf(path, {}, {view("a", GgufType::kF32, {0}, &one, 0)}), Error);
  EXPECT_THROW(write_gguf(path, {}, {view(std::string(65, 'a'), GgufType::kF32, {1}, &one, 4)}),
               Error);
  EXPECT_THROW(write_gguf(path, {{"k", true}, {"k", false}}, {}), Error);
  EXPECT_THROW(write_gguf(path, {},
                          {view("a", GgufType::kF32, {1}, &one, 4),
                           view("a", GgufType::kF32, {1}, &one, 4)}),
               Error);
  EXPECT_EQ(testing::read_file(path), before);
}

}  // namespace
}  // namespace dflash::io
