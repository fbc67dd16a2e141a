// safetensors: agreement with the reference package, round trip, and every way to be damaged.
#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "files_for_tests.h"
#include "support/memory_file.h"
#include "support/temp_folder.h"

namespace dflash::io {
namespace {

namespace fs = std::filesystem;
using dflash::testing::error_of;
using dflash::testing::MemoryFile;
using dflash::testing::read_file;
using dflash::testing::safetensors_bytes;
using dflash::testing::source_path;
using dflash::testing::TempFolder;
using dflash::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> values(const TensorView& view) {
  std::vector<T> out(view.bytes.size() / sizeof(T));
  std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return out;
}

template <typename T>
TensorView view_of(std::string name, Dtype dtype, std::vector<int64_t> shape,
                   const std::vector<T>& data) {
  return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(data))};
}

TEST(Safetensors, ReadsWhatTheReferencePackageWrote) {
  const auto file = Checkpoint::open(source_path("tests/golden/io/plain.safetensors"));
  EXPECT_EQ(file->tensors().size(), 11U);
  EXPECT_EQ(file->metadata().at("note"), "zwölf");
  EXPECT_THAT(values<int64_t>(file->get("i64")), ElementsAre(-1, int64_t{1} << 62));
  EXPECT_THAT(values<int32_t>(file->get("i32")), ElementsAre(-7));
  EXPECT_THAT(values<int16_t>(file->get("i16")), ElementsAre(-300, 300));
  EXPECT_THAT(values<int8_t>(file->get("i8")), ElementsAre(-128, 127, 0));
  EXPECT_THAT(values<uint8_t>(file->get("u8")), ElementsAre(0, 255));
  EXPECT_THAT(values<uint8_t>(file->get("bool")), ElementsAre(1, 0, 1));
  EXPECT_THAT(values<float>(file->get("scalar")), ElementsAre(2.5F));
  EXPECT_TRUE(file->get("scalar").shape.empty());
  EXPECT_THAT(file->get("empty").shape, ElementsAre(0, 4));
  EXPECT_EQ(file->get("empty").bytes.size(), 0U);
  EXPECT_EQ(file->get("f64").dtype, Dtype::kF64);
  EXPECT_EQ(file->get("f16").dtype, Dtype::kF16);
  EXPECT_THAT(file->get("f32").shape, ElementsAre(3, 4));
}

TEST(Safetensors, RoundTripKeepsBytesAndAligns) {
  const TempFolder folder;
  const std::vector<uint16_t> odd{1, 2, 3};
  const std::vector<float> floats{1.5F, -2.0F};
  const std::vector<int64_t> longs{-5};
  const std::vector<uint8_t> flags{1};
  const std::vector<float> none;
  const fs::path path = folder / "deep/model.safetensors";
  write_safetensors(
      path,
      {view_of("flags", Dtype::kBool, {1}, flags), view_of("b", Dtype::kBF16, {3}, odd),
       view_of("f", Dtype::kF32, {2, 1}, floats), view_of("l", Dtype::kI64, {}, longs),
       view_of("none", Dtype::kF32, {3, 0}, none)},
      {{"step", "7"}});
  const auto file = Checkpoint::open(path);
  EXPECT_EQ(file->tensors().size(), 5U);
  EXPECT_THAT(file->metadata(), ElementsAre(std::pair("format", "pt"), std::pair("step", "7")));
  EXPECT_EQ(values<uint16_t>(file->get("b")), odd);
  EXPECT_EQ(values<float>(file->get("f")), floats);
  EXPECT_EQ(values<int64_t>(file->get("l")), longs);
  EXPECT_EQ(values<uint8_t>(file->get("flags")), flags);
  EXPECT_THAT(file->get("none").shape, ElementsAre(3, 0));
  for (const TensorView& view : file->tensors()) {
    const auto address = reinterpret_cast<uintptr_t>(view.bytes.data());
    EXPECT_EQ(address % dtype_bytes(view.dtype), 0U) << view.name;
  }
  EXPECT_EQ(Checkpoint::open(path.parent_path())->tensors().size(), 5U);
}

TEST(Safetensors, WriterRefusesWhatNoReaderWouldTake) {
  const TempFolder folder;
  const fs::path path = folder / "x.safetensors";
  const std::vector<float> one{1.0F};
  const TensorView good = view_of("a", Dtype::kF32, {1}, one);
  TensorView short_one = view_of("a", Dtype::kF32, {2}, one);
  TensorView reserved = view_of("__metadata__", Dtype::kF32, {1}, one);
  TensorView no_text = view_of("\xff", Dtype::kF32, {1}, one);
  TensorView huge = view_of("a", Dtype::kF32, {INT64_MAX, 4}, one);
  EXPECT_THROW(write_safetensors(path, {good, good}), Error);
  EXPECT_THROW(write_safetensors(path, {short_one}), Error);
  EXPECT_THROW(write_safetensors(path, {reserved}), Error);
  EXPECT_THROW(write_safetensors(path, {no_text}), Error);
  EXPECT_THROW(write_safetensors(path, {huge}), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Safetensors, EveryPrefixIsACleanError) {
  const TempFolder folder;
  const std::string whole = read_file(source_path("tests/golden/io/plain.safetensors"));
  const fs::path path = folder / "cut.safetensors";
  for (size_t size = 0; size < whole.size(); ++size) {
    const MemoryFile cut(std::string_view(whole).substr(0, size));
    EXPECT_THROW(Checkpoint::open(cut.path()), Error) << size;
  }
  write_file(path, whole + "x");
  EXPECT_THAT(error_of<Error>([&] { Checkpoint::open(path); }), HasSubstr("of tensors"));
}

struct Damage {
  const char* name;
  std::string header;
  std::string message;
};

class SafetensorsDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(SafetensorsDamage, IsNamed) {
  const TempFolder folder;
  const fs::path path = folder / "bad.safetensors";
  write_file(path, safetensors_bytes(GetParam().header, "01234567"));  // eight bytes of data
  const std::string message = error_of<Error>([&] { Checkpoint::open(path); });
  EXPECT_THAT(message, HasSubstr(GetParam().message));
  EXPECT_THAT(message, HasSubstr("bad.safetensors"));
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Table, SafetensorsDamage,
    ::testing::Values(
        Damage{"no_brace", R"( {"t":1})", "does not start with"},
        Damage{"empty", "", "does not start"}, Damage{"no_json", "{\"t\":", "header: "},
        Damage{"not_utf8", "{\"\xff\":{}}", "header: "},
        Damage{"after_nul", std::string("{}\0{", 4), "NUL byte"},
        Damage{"tensor_twice",
               R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("t":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
               "duplicate key \"t\""},
        Damage{"field_twice",
               R"({"t":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
               "duplicate key \"dtype\""},
        Damage{"deep", "{\"t\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
               "nested deeper"},
        Damage{"metadata_number", R"({"__metadata__":{"a":1}})", "expected a string"},
        Damage{"metadata_list", R"({"__metadata__":[]})", "is no object"},
        Damage{"no_object", R"({"t":7})", "no \"dtype\""},
        Damage{"no_shape", R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", "no \"shape\""},
        Damage{"no_offsets", R"({"t":{"dtype":"F32","shape":[2]}})", "no \"data_offsets\""},
        Damage{"unknown_dtype", entry("F8_E4M3", "[8]", "[0,8]"), "got \"F8_E4M3\""},
        Damage{"negative_dim", entry("F32", "[-2]", "[0,8]"), "got -2"},
        Damage{"float_dim", entry("F32", "[2.0]", "[0,8]"), "got 2.0"},
        Damage{"text_dim", entry("F32", "[\"2\"]", "[0,8]"), "got \"2\""},
        Damage{"dim_2_63", entry("F32", "[9223372036854775808]", "[0,8]"), "below 2^63"},
        Damage{"dim_beyond_64_bits", entry("F32", "[99999999999999999999]", "[0,8]"), "below 2^63"},
        Damage{"product_wraps", entry("F32", "[4294967296,4294967296,2]", "[0,8]"), "2^63"},
        Damage{"product_wraps_to_fit", entry("F32", "[4611686018427387905,2]", "[0,8]"), "2^63"},
        Damage{"bytes_wrap", entry("F64", "[2305843009213693953]", "[0,8]"), "2^63"},
        Damage{"wraps_before_zero", entry("F32", "[4294967296,4294967296,0]", "[0,0]"), "2^63"},
        Damage{"three_offsets", entry("F32", "[2]", "[0,8,8]"), "no pair"},
        Damage{"offset_negative", entry("F32", "[2]", "[-8,0]"), "got -8"},
        Damage{"backwards", entry("F32", "[2]", "[8,0]"), "start at 0"},
        Damage{"wrong_size", entry("F32", "[1]", "[0,8]"), "expected 4 bytes"},
        Damage{"past_the_end", entry("F32", "[4]", "[0,16]"), "the file's at 8"},
        Damage{"hole", entry("F32", "[1]", "[4,8]"), "start at 0, got 4"},
        Damage{"bytes_left", entry("F32", "[1]", "[0,4]"), "expected 4 bytes of tensors, got 8"},
        Damage{"overlap",
               R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               "tensor b: expected its bytes to start at 8"}),
    [](const auto& info) { return info.param.name; });

TEST(Safetensors, HeaderSizesThatLie) {
  const TempFolder folder;
  const fs::path path = folder / "x.safetensors";
  for (const uint64_t size : {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 63, UINT64_MAX}) {
    write_file(path, dflash::testing::raw(size) + "{}");
    EXPECT_THROW(Checkpoint::open(path), Error) << size;
  }
  write_file(path, safetensors_bytes("{}    ", ""));
  EXPECT_TRUE(Checkpoint::open(path)->tensors().empty());
  EXPECT_THROW(Checkpoint::open(folder / "absent"), Error);
}

TEST(Safetensors, MissingTensorNamesTheNearest) {
  const auto file = Checkpoint::open(source_path("tests/golden/io/plain.safetensors"));
  EXPECT_EQ(file->find("f23"), nullptr);
  EXPECT_THAT(error_of<Error>([&] { file->get("f123"); }), HasSubstr("f32"));
}

class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<float> one{1.0F}, two{2.0F};
    write_safetensors(folder_ / "a.safetensors", {view_of("x", Dtype::kF32, {1}, one)});
    write_safetensors(folder_ / "b.safetensors", {view_of("y", Dtype::kF32, {1}, two)});
  }

  std::string open_with(const std::string& weight_map) {
    write_file(folder_ / "model.safetensors.index.json",
               R"({"metadata":{"total_size":1},"weight_map":)" + weight_map + "}");
    return error_of<Error>([&] { Checkpoint::open(folder_.path()); });
  }

  TempFolder folder_;
};

TEST_F(Shards, OpenAsOne) {
  write_file(folder_ / "model.safetensors.index.json",
             R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  const auto both = Checkpoint::open(folder_.path());
  EXPECT_THAT(values<float>(both->get("x")), ElementsAre(1.0F));
  EXPECT_THAT(values<float>(both->get("y")), ElementsAre(2.0F));
}

TEST_F(Shards, EachFaultHasItsOwnError) {  // R-EX-8
  EXPECT_THAT(error_of<Error>([&] { Checkpoint::open(folder_.path()); }),
              HasSubstr("model.safetensors.index.json is missing, but there are a.safetensors, b"));
  EXPECT_THAT(open_with(R"({"x":"a.safetensors","y":"c.safetensors"})"),
              HasSubstr("missing shard"));
  EXPECT_THAT(open_with(R"({"x":"a.safetensors","y":"a.safetensors"})"),
              HasSubstr("lists y in it, but it is not there"));
  EXPECT_THAT(open_with(R"({"x":"b.safetensors","y":"a.safetensors"})"), HasSubstr("not there"));
  EXPECT_THAT(open_with(R"({"x":"a.safetensors","x":"b.safetensors"})"),
              HasSubstr("duplicate key"));
  const std::vector<float> three{3.0F};
  write_safetensors(folder_ / "b.safetensors",
                    {view_of("y", Dtype::kF32, {1}, three), view_of("x", Dtype::kF32, {1}, three)});
  EXPECT_THAT(open_with(R"({"x":"a.safetensors","y":"b.safetensors"})"),
              HasSubstr("duplicate tensor"));
}

TEST_F(Shards, NamesStayInTheFolder) {
  for (const char* name :
       {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "", "..", "a\\\\b", "a\\u0000b"}) {
    EXPECT_THAT(open_with(std::string(R"({"x":")") + name + "\"}"), HasSubstr("same folder"))
        << name;
  }
  EXPECT_THAT(open_with(R"({"x":7})"), HasSubstr("expected a file name"));
  EXPECT_THAT(open_with("{}"), HasSubstr("is empty"));
  EXPECT_THAT(open_with("[]"), HasSubstr("expected an object"));
  fs::remove_all(folder_ / "a.safetensors");
  fs::remove_all(folder_ / "b.safetensors");
  fs::remove_all(folder_ / "model.safetensors.index.json");
  EXPECT_THAT(error_of<Error>([&] { Checkpoint::open(folder_.path()); }),
              HasSubstr("in this folder"));
}

}  // namespace
}  // namespace dflash::io
