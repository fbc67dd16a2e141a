// Both sources give the same rows, and the file source checks what it reads.
#include "train/source.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/features.h"
#include "support/temp_folder.h"
#include "target/random.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

/// Writes features of every document as capture would.
void write_features(const std::filesystem::path& folder, const data::Dataset& set,
                    toy::Source& source, bool with_last) {
  data::FeatureInfo info;
  info.target_fingerprint = "toy";
  info.taps = {1, 3};
  info.hidden_size = toy::kWidth;
  info.dtype = io::Dtype::kF32;
  info.has_last = with_last;
  data::FeatureWriter writer(folder, info);
  data::FeatureShard shard;
  const auto append = [](std::vector<std::byte>& to, const at::Tensor& from) {
    const auto* bytes = static_cast<const std::byte*>(from.const_data_ptr());
    to.insert(to.end(), bytes, bytes + from.nbytes());
  };
  for (int64_t d = 0; d < set.num_documents(); ++d) {
    const auto length = static_cast<int64_t>(set.document_ids(d).size());
    const FeatureRow row = source.row({{d, length}});
    shard.documents.push_back(d);
    shard.offsets.push_back(shard.offsets.back() + length);
    shard.ids.insert(shard.ids.end(), row.ids.begin(), row.ids.end());
    shard.argmax.insert(shard.argmax.end(), row.argmax.begin(), row.argmax.end());
    append(shard.taps, row.taps_TF.contiguous());
    if (with_last) append(shard.last, row.last_TD.contiguous());
  }
  writer.write(shard);
  writer.finish();
}

TEST(FileSource, GivesTheRowsThatWereWritten) {
  const testing::TempFolder folder;
  const data::Dataset set = toy::dataset();
  toy::Source toy_source(set);
  write_features(folder.path(), set, toy_source, true);
  const auto reader = std::make_shared<const data::FeatureReader>(folder.path());
  const auto files = file_source(set, reader);
  EXPECT_EQ(files->feature_size(), toy_source.feature_size());
  EXPECT_TRUE(files->has_last());
  const std::vector<data::PackedPlan::Piece> pieces = {{4, 5}, {0, 6}, {7, 3}};
  const FeatureRow got = files->row(pieces), want = toy_source.row(pieces);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.doc, want.doc);
  EXPECT_EQ(got.pos, want.pos);
  EXPECT_EQ(got.loss_mask, want.loss_mask);
  EXPECT_EQ(got.document, want.document);
  EXPECT_EQ(got.argmax, want.argmax);
  EXPECT_TRUE(got.taps_TF.equal(want.taps_TF));
  EXPECT_TRUE(got.last_TD.equal(want.last_TD));
}

// CAP-06: features of other ids are an error, not a silent mismatch.
TEST(FileSource, OtherIdsAreAnError) {
  const testing::TempFolder folder;
  const data::Dataset set = toy::dataset();
  toy::Source toy_source(set);
  write_features(folder.path(), set, toy_source, false);
  data::Dataset other = set;
  other.ids[2] = (other.ids[2] + 1) % toy::kVocab;
  const auto files = file_source(other, std::make_shared<const data::FeatureReader>(folder.path()));
  EXPECT_THROW(files->row({{0, 5}}), Error);
  EXPECT_FALSE(files->has_last());
}

// A document's rows do not depend on what it is packed with; argmax comes from the target's own
// norm and head.
TEST(LiveSource, PackedRowsEqualSingleDocuments) {
  const auto llama = target::make_random_llama(target::tiny_llama_config(), 3);
  const data::Dataset set = toy::dataset();
  const auto live = live_source(set, llama, {0, 1}, /*with_last=*/true);
  EXPECT_EQ(live->feature_size(), 2 * llama->config().hidden_size);
  const FeatureRow both = live->row({{2, 6}, {5, 5}}), alone = live->row({{5, 5}});
  EXPECT_EQ(both.document, (std::vector<int64_t>{2, 5}));
  EXPECT_TRUE(both.taps_TF.narrow(0, 6, 5).equal(alone.taps_TF));
  EXPECT_TRUE(both.last_TD.narrow(0, 6, 5).equal(alone.last_TD));
  EXPECT_EQ(std::vector<int64_t>(both.argmax.begin() + 6, both.argmax.end()), alone.argmax);
  const at::Tensor logits = llama->head().logits(llama->final_norm(alone.last_TD));
  for (int64_t t = 0; t < 5; ++t) {
    const double best = logits[t].max().item<double>();
    EXPECT_NEAR(logits[t][alone.argmax[t]].item<double>(), best, 1e-5);
  }
  EXPECT_FALSE(both.taps_TF.requires_grad());
  EXPECT_FALSE(both.taps_TF.is_inference());
}

}  // namespace
}  // namespace dflash::train
