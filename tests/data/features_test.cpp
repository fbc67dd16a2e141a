// Feature folders: round trip, resume, ids, damage (R-CAP-7), folders of something else.
#include "data/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace dflash::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

FeatureInfo make_info() {
  return {.target_fingerprint = "abc",
          .storage = "bf16",
          .kernels = "plain",
          .taps = {1, 3},
          .hidden_size = 2,
          .dtype = io::Dtype::kF32,
          .has_last = true,
          .dataset_fingerprint = "d"};
}

void append(std::vector<std::byte>& bytes, float value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

/// Document d has `length` tokens 10d, 10d+1, ...; taps of token t are t + 0, .25, .5, .75.
void add_document(FeatureShard& shard, int64_t d, int64_t length) {
  shard.documents.push_back(d);
  for (int64_t i = 0; i < length; ++i) {
    const int64_t id = 10 * d + i;
    shard.ids.push_back(id);
    shard.argmax.push_back(id + 1);
    for (int c = 0; c < 4; ++c) append(shard.taps, static_cast<float>(id) + 0.25f * c);
    for (int c = 0; c < 2; ++c) append(shard.last, static_cast<float>(-id));
  }
  shard.offsets.push_back(static_cast<int64_t>(shard.ids.size()));
}

FeatureShard make_shard(std::vector<int64_t> documents, int64_t length) {
  FeatureShard shard;
  for (int64_t d : documents) add_document(shard, d, length);
  return shard;
}

void write_two_shards(const fs::path& folder) {
  FeatureWriter writer(folder, make_info());
  writer.write(make_shard({0, 1}, 3));
  writer.write(make_shard({4}, 5));
  writer.finish();
}

std::vector<float> floats(std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(Features, ReadsBackWhatWasWritten) {
  const testing::TempFolder folder;
  write_two_shards(folder.path());
  const FeatureReader reader(folder.path());
  EXPECT_TRUE(reader.has(4));
  EXPECT_FALSE(reader.has(2));
  const std::vector<int64_t> ids = {40, 41, 42, 43, 44};
  const DocumentFeatures found = reader.get(4, ids);
  EXPECT_THAT(found.ids, ElementsAre(40, 41, 42, 43, 44));
  EXPECT_THAT(found.argmax, ElementsAre(41, 42, 43, 44, 45));
  EXPECT_EQ(found.taps.size(), 5u * 4 * 4);
  EXPECT_THAT(floats(found.taps.subspan(16, 16)), ElementsAre(41, 41.25, 41.5, 41.75));
  EXPECT_THAT(floats(found.last), ElementsAre(-40, -40, -41, -41, -42, -42, -43, -43, -44, -44));
  const std::vector<int64_t> second = {10, 11};  // a beginning of document 1
  EXPECT_THAT(floats(reader.get(1, second).taps),
              ElementsAre(10, 10.25, 10.5, 10.75, 11, 11.25, 11.5, 11.75));
}

TEST(Features, IdsAreChecked) {  // CAP-06
  const testing::TempFolder folder;
  write_two_shards(folder.path());
  const FeatureReader reader(folder.path());
  const std::vector<int64_t> changed = {10, 11, 13}, longer = {10, 11, 12, 13}, any = {20};
  EXPECT_THAT(testing::error_text([&] { reader.get(1, changed); }), HasSubstr("captured from"));
  EXPECT_THAT(testing::error_text([&] { reader.get(1, longer); }), HasSubstr("captured from"));
  EXPECT_THAT(testing::error_text([&] { reader.get(2, any); }), HasSubstr("document 2 is absent"));
}

TEST(Features, ResumesAtWholeShards) {
  const testing::TempFolder folder;
  {
    FeatureWriter writer(folder.path(), make_info());
    writer.write(make_shard({0, 1}, 3));
    writer.write(make_shard({2}, 3));
  }
  EXPECT_THAT(testing::error_text([&] { FeatureReader reader(folder.path()); }),
              HasSubstr("incomplete"));
  // A shard that no index names yet (killed in between) is written again.
  write_text(folder / "part-00002.safetensors", "torn");
  FeatureWriter writer(folder.path(), make_info());
  EXPECT_THAT(writer.done(), ElementsAre(0, 1, 2));
  writer.write(make_shard({3}, 2));
  writer.finish();
  const FeatureReader reader(folder.path());
  for (int64_t d = 0; d < 4; ++d) EXPECT_TRUE(reader.has(d));
  EXPECT_THAT(testing::error_text([&] { FeatureWriter again(folder.path(), make_info()); }),
              HasSubstr("complete already"));
}

TEST(Features, ResumeRefusesAnotherCapture) {
  const testing::TempFolder folder;
  { FeatureWriter(folder.path(), make_info()).write(make_shard({0}, 3)); }
  const auto error = [&](auto change) {
    FeatureInfo info = make_info();
    change(info);
    return testing::error_text([&] { FeatureWriter writer(folder.path(), info); });
  };
  EXPECT_THAT(error([](FeatureInfo& i) {
                i.taps = {1, 2};
              }),
              HasSubstr("taps: expected [1,2], got [1,3]"));
  EXPECT_THAT(error([](FeatureInfo& i) { i.target_fingerprint = "x"; }), HasSubstr("fingerprint"));
  EXPECT_THAT(error([](FeatureInfo& i) { i.dataset_fingerprint = "x"; }),
              HasSubstr("another dataset"));
  EXPECT_THAT(error([](FeatureInfo& i) { i.dtype = io::Dtype::kBF16; }), HasSubstr("dtype"));
  EXPECT_THAT(error([](FeatureInfo& i) { i.has_last = false; }), HasSubstr("has_last"));
  EXPECT_EQ(error([](FeatureInfo& i) { i.kernels = "amx"; }), "");
}

TEST(Features, ShardCutByOneByte) {  // R-CAP-7
  const testing::TempFolder folder;
  write_two_shards(folder.path());
  const fs::path shard = folder / "part-00001.safetensors";
  const auto size = fs::file_size(shard);
  fs::resize_file(shard, size - 1);
  const std::string error = testing::error_text([&] { FeatureReader reader(folder.path()); });
  EXPECT_THAT(error, HasSubstr("part-00001.safetensors"));
  EXPECT_THAT(error, HasSubstr(fmt::format("expected {} bytes, found {}", size, size - 1)));
  fs::resize_file(shard, size);  // whole again, last byte lost
  EXPECT_EQ(testing::error_text([&] { FeatureReader reader(folder.path()); }), "");
  fs::remove(shard);
  EXPECT_THAT(testing::error_text([&] { FeatureReader reader(folder.path()); }),
              HasSubstr("part-00001"));
}

TEST(Features, DrafterThatWantsOtherTaps) {  // R-CAP-7
  FeatureInfo info = make_info();
  info.taps = {1, 9, 17, 25, 33};
  EXPECT_THAT(testing::error_text([&] {
                check_features(info, {1, 9, 17, 25, 33, 35}, 2, "");
              }),
              HasSubstr("number of taps: expected 6, got 5"));
  EXPECT_THAT(testing::error_text([&] { check_features(info, info.taps, 3, ""); }),
              HasSubstr("hidden size"));
  EXPECT_THAT(testing::error_text([&] { check_features(info, info.taps, 2, "other"); }),
              HasSubstr("fingerprint"));
  EXPECT_NO_THROW(check_features(info, info.taps, 2, "abc"));
}

TEST(Features, DamagedIndexIsAnError) {
  const testing::TempFolder folder;
  write_two_shards(folder.path());
  const Json good = read_json(folder / "features.json");
  const auto error = [&](auto change) {
    Json json = good;
    change(json);
    write_json(folder / "features.json", json);
    return testing::error_text([&] { FeatureReader reader(folder.path()); });
  };
  EXPECT_EQ(error([](Json&) {}), "");
  EXPECT_THAT(error([](Json& j) { j.erase("taps"); }), HasSubstr("features.json"));
  EXPECT_THAT(error([](Json& j) { j["taps"] = "x"; }), HasSubstr("features.json"));
  EXPECT_THAT(error([](Json& j) { j["shards"] = 3; }), HasSubstr("shards"));
  EXPECT_THAT(error([](Json& j) { j["hidden_size"] = 3; }), HasSubstr("taps: expected F32 [6, 6]"));
  EXPECT_THAT(error([](Json& j) { j["dtype"] = "F16"; }), HasSubstr("dtype"));
  EXPECT_THAT(error([](Json& j) { j["last_is_normed"] = true; }), HasSubstr("final norm"));
  EXPECT_THAT(error([](Json& j) { j = Json::array(); }), HasSubstr("dflash-features"));
}

}  // namespace
}  // namespace dflash::data
