// Dataset folders: round trip, damage, packing, shuffling, splitting.
#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace dflash::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Piece = PackedPlan::Piece;

Dataset make_dataset(const std::vector<int64_t>& lengths) {
  Dataset dataset;
  int64_t next = 0;
  for (int64_t length : lengths) {
    Document document{std::vector<int64_t>(length), std::vector<uint8_t>(length, 1)};
    std::iota(document.ids.begin(), document.ids.end(), next);
    document.loss_mask[0] = 0;
    next += length;
    dataset.add(document);
  }
  dataset.info["vocab_size"] = 100;
  return dataset;
}

TEST(Dataset, SavesAndLoads) {
  const testing::TempFolder folder;
  const Dataset dataset = make_dataset({3, 1, 4});
  save_dataset(folder / "set", dataset);
  const Dataset loaded = load_dataset(folder / "set");
  EXPECT_EQ(loaded.ids, dataset.ids);
  EXPECT_EQ(loaded.loss_mask, dataset.loss_mask);
  EXPECT_EQ(loaded.offsets, dataset.offsets);
  EXPECT_EQ(loaded.keys, dataset.keys);
  EXPECT_EQ(loaded.info["supervised_tokens"], 5);
  EXPECT_EQ(loaded.info["fingerprint"], dataset_fingerprint(dataset));
  EXPECT_THAT(std::vector<int64_t>(loaded.document_ids(2).begin(), loaded.document_ids(2).end()),
              ElementsAre(4, 5, 6, 7));
  save_dataset(folder / "set", make_dataset({2}));  // replaced
  EXPECT_EQ(load_dataset(folder / "set").num_documents(), 1);
  write_text(folder / "features" / "features.json", "{}");  // its parts have the same names
  EXPECT_THAT(testing::error_text([&] { save_dataset(folder / "features", dataset); }),
              HasSubstr("found features"));
}

TEST(Dataset, RefusesRowsThatDoNotFit) {  // PREP-24
  Dataset dataset;
  EXPECT_THAT(testing::error_text([&] {
                dataset.add({{1, 2, 3, 4, 5}, {1, 1, 1, 1}});
              }),
              HasSubstr("5 ids and 4 mask entries"));
  EXPECT_THAT(testing::error_text([&] { dataset.add({}); }), HasSubstr("at least one token"));
  EXPECT_EQ(dataset.num_documents(), 0);
}

TEST(Dataset, DamagedFoldersAreErrors) {
  const testing::TempFolder folder;
  const fs::path set = folder / "set", info = set / "dataset.json";
  const auto fresh = [&] { save_dataset(set, make_dataset({3, 4})); };
  const auto error = [&] { return testing::error_text([&] { load_dataset(set); }); };

  EXPECT_THAT(error(), HasSubstr("dataset.json: missing"));
  fresh();
  fs::resize_file(set / "part-00000.safetensors",
                  fs::file_size(set / "part-00000.safetensors") - 1);
  EXPECT_THAT(error(), HasSubstr("part-00000.safetensors"));
  fs::remove(set / "part-00000.safetensors");
  EXPECT_THAT(error(), HasSubstr("part-00000.safetensors"));

  const auto with = [&](const char* key, const Json& value) {
    fresh();
    Json json = read_json(info);
    json[key] = value;
    write_json(info, json);
    return error();
  };
  EXPECT_THAT(with("tokens", 8), HasSubstr("tokens: expected 8, found 7"));
  EXPECT_THAT(with("documents", 3), HasSubstr("documents: expected 3, found 2"));
  EXPECT_THAT(with("version", 2), HasSubstr("version"));
  EXPECT_THAT(with("version", "x"), HasSubstr("whole number"));
  EXPECT_THAT(with("format", "other"), HasSubstr("dflash-dataset"));
  EXPECT_THAT(with("vocab_size", 6), HasSubstr("id from 0 to 5, got 6"));
}

TEST(Pack, WholeDocumentsInOrder) {
  const Dataset dataset = make_dataset({3, 4, 2, 9, 1});
  const PackedPlan plan = pack_documents(dataset, 8);
  EXPECT_THAT(plan.rows,
              ElementsAre(ElementsAre(Piece{0, 3}, Piece{1, 4}), ElementsAre(Piece{2, 2}),
                          ElementsAre(Piece{3, 8}), ElementsAre(Piece{4, 1})));
  const std::vector<int64_t> order = {4, 3};
  EXPECT_THAT(pack_documents(dataset, 20, order).rows,
              ElementsAre(ElementsAre(Piece{4, 1}, Piece{3, 9})));
  EXPECT_THROW(pack_documents(dataset, 1), Error);
}

TEST(Shuffle, PermutesByKeys) {
  const auto order = shuffled_documents(50, 1, 0);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 50u);
  EXPECT_EQ(order, shuffled_documents(50, 1, 0));
  EXPECT_NE(order, shuffled_documents(50, 1, 1));
  EXPECT_NE(order, shuffled_documents(50, 2, 0));
}

TEST(Shuffle, CapAfterShuffleMixesSources) {  // R-PREP-8
  int all_from_first = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto order = shuffled_documents(10, seed, 0);
    int from_first = 0;
    for (int i = 0; i < 4; ++i) from_first += order[i] < 5 ? 1 : 0;
    all_from_first += from_first == 4 ? 1 : 0;
  }
  EXPECT_LE(all_from_first, 6);
}

TEST(Split, OneBoundary) {  // PREP-21
  for (int64_t n : {1, 2, 3, 10, 12501}) {
    for (double share : {0.0, 0.001, 0.1, 0.2, 0.5, 0.9, 0.999}) {
      const int64_t boundary = split_boundary(n, share);
      EXPECT_GE(boundary, 1) << n << " " << share;
      EXPECT_LE(boundary, n) << n << " " << share;
      EXPECT_EQ(boundary<n, share> 0 && n > 1) << n << " " << share;
    }
  }
  EXPECT_EQ(split_boundary(12501, 0.2), 10001);
  EXPECT_EQ(split_boundary(10, 0.9), 1);
  for (double bad : {-0.1, 1.0, 2.0, std::nan("")}) EXPECT_THROW(split_boundary(10, bad), Error);
}

}  // namespace
}  // namespace dflash::data
