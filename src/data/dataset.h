// A dataset folder: token ids of whole documents with the mask of what the target wrote.
//   dataset.json               format, tokenizer and template fingerprint, counts, drops
//   part-00000.safetensors     ids i32 [T], loss_mask u8 [T], offsets i64 [documents + 1]
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace dflash::data {

struct Document {
  std::vector<int64_t> ids;
  std::vector<uint8_t> loss_mask;
};

struct Dataset {
  std::vector<int64_t> ids;
  std::vector<uint8_t> loss_mask;
  std::vector<int64_t> offsets = {0};  // document d is [offsets[d], offsets[d + 1])
  Json info = Json::object();          // dataset.json

  int64_t num_documents() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_supervised() const;
  std::span<const int64_t> document_ids(int64_t d) const;
  std::span<const uint8_t> document_mask(int64_t d) const;
  /// Error when the lengths differ or the document is empty.
  void add(const Document& document);
};

/// Atomic; dataset.json last. `info` gets format, version and counts added.
void save_dataset(const std::filesystem::path& folder, const Dataset& dataset);
/// Errors: missing files, lengths that disagree, ids outside [0, vocab) when the file says vocab.
Dataset load_dataset(const std::filesystem::path& folder);

/// Documents in order, greedily packed into rows of at most `row_tokens`; a document longer than
/// that is cut (ids and mask alike). Padding is never added. Order is that of `order` (empty: all).
struct PackedPlan {
  struct Piece {
    int64_t document = 0, length = 0;
  };
  std::vector<std::vector<Piece>> rows;
};
PackedPlan pack_documents(const Dataset& dataset, int64_t row_tokens,
                          std::span<const int64_t> order = {});

/// Document order of an epoch, keyed by (seed, epoch).
std::vector<int64_t> shuffled_documents(int64_t num_documents, uint64_t seed, int64_t epoch);

}  // namespace dflash::data
