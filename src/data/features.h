// A features folder: what the target's hidden states are at every token of a dataset.
//   features.json              format, fingerprints of target and dataset, taps, hidden size, norm
//                              flag, dtype, storage and kernels of the capture, shards, COMPLETE
//                              flag
//   part-00000.safetensors     taps bf16|f32 [T, F], argmax i32 [T], ids i32 [T], offsets i64,
//                              documents i64 (dataset numbers), last [T, D] (only for soft losses)
// Shards are whole documents, written one by one; a folder with fewer shards than the dataset needs
// is resumed. No Torch here: rows are bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/json.h"
#include "io/safetensors.h"

namespace dflash::data {

struct FeatureInfo {
  std::string target_fingerprint, storage, kernels;
  std::vector<int64_t> taps;
  int64_t hidden_size = 0;
  io::Dtype dtype = io::Dtype::kBF16;
  bool has_last = false;            // pre-norm final hidden state stored too
  std::string dataset_fingerprint;  // of the dataset they are captured from
  Json to_json() const;
  static FeatureInfo from_json(const Json& json);
};

/// One shard's worth of documents, filled by the capture job; row-major bytes of info.dtype.
struct FeatureShard {
  std::vector<int64_t> documents, offsets = {0}, ids, argmax;
  std::vector<std::byte> taps, last;
};

/// Error when a capture that goes on would mix two datasets.
void check_dataset(const FeatureInfo& info, const std::string& dataset_fingerprint);

/// Error naming the first difference when features do not fit what a drafter reads: taps, hidden
/// size, target. Empty taps or fingerprint are not compared.
void check_features(const FeatureInfo& info, const std::vector<int64_t>& taps, int64_t hidden_size,
                    const std::string& target_fingerprint);

class FeatureWriter {
 public:
  /// Opens or resumes `folder`. Error when it holds features of another target, dataset, taps or
  /// dtype, or is complete; other storage or kernels are a warning.
  FeatureWriter(std::filesystem::path folder, const FeatureInfo& info);
  /// Documents already stored (whole shards only).
  const std::vector<int64_t>& done() const { return done_; }
  /// Writes one shard atomically. Error when sizes disagree or the disk is full.
  void write(const FeatureShard& shard);
  /// Marks the folder complete.
  void finish();

 private:
  struct ShardEntry {
    std::string file;
    int64_t documents = 0, tokens = 0, bytes = 0;
  };
  void resume(const Json& json);
  void write_index(bool complete) const;

  std::filesystem::path folder_;
  FeatureInfo info_;
  std::vector<int64_t> done_;
  std::vector<ShardEntry> shards_;
};

/// Features of one document, as views on the mapped shard.
struct DocumentFeatures {
  std::span<const std::byte> taps, last;  // last is empty when not stored
  std::span<const int32_t> ids, argmax;
  std::shared_ptr<const void> owner;
};

class FeatureReader {
 public:
  /// Errors: incomplete folder, damaged shard (expected and found size).
  explicit FeatureReader(const std::filesystem::path& folder);
  const FeatureInfo& info() const { return info_; }
  bool has(int64_t document) const;
  /// Error when a stored argmax is no id of a vocabulary of this size.
  void check_vocabulary(int64_t vocab_size) const;
  /// The first ids.size() rows of a document. Error when it is absent, or `ids` are not the ids it
  /// was captured from (or a beginning of them: rows of a causal target do not depend on what
  /// follows).
  DocumentFeatures get(int64_t document, std::span<const int64_t> ids) const;

 private:
  struct Place {
    size_t shard = 0;
    int64_t begin = 0, end = 0;
  };
  void open_shard(const std::filesystem::path& path, const Json& entry);

  FeatureInfo info_;
  std::filesystem::path folder_;
  std::vector<std::shared_ptr<const io::Checkpoint>> shards_;
  std::map<int64_t, Place> places_;
  int64_t largest_argmax_ = -1;
};

}  // namespace dflash::data
