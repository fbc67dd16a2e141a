// A dataset folder: token ids of whole documents with the mask of what the target wrote.
//   dataset.json               format, tokenizer and template fingerprint, counts, drops
//   part-00000.safetensors     ids i32 [T], loss_mask u8 [T], offsets i64 [documents + 1],
//                              keys i64 [documents]
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
  uint64_t key = 0;  // stable id; 0: add() takes the content's hash
};

struct Dataset {
  std::vector<int64_t> ids;
  std::vector<uint8_t> loss_mask;
  std::vector<int64_t> offsets = {0};  // document d is [offsets[d], offsets[d + 1])
  std::vector<uint64_t> keys;          // stable id of each document
  Json info = Json::object();          // dataset.json

  int64_t num_documents() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_supervised() const;
  std::span<const int64_t> document_ids(int64_t d) const;
  std::span<const uint8_t> document_mask(int64_t d) const;
  /// Error when the lengths differ or the document is empty.
  void add(const Document& document);
};

/// Hash of ids and mask.
uint64_t content_hash(std::span<const int64_t> ids, std::span<const uint8_t> loss_mask);

/// Hex hash over all documents in order; caches made from a dataset store it (PREP-23).
std::string dataset_fingerprint(const Dataset& dataset);

/// Atomic; dataset.json last, so a folder without it is no dataset. `info` gets format, version,
/// counts and fingerprint added. A dataset that stood in the folder is replaced. Error: the folder
/// holds another kind of result, or another process writes there.
void save_dataset(const std::filesystem::path& folder, const Dataset& dataset);
/// Errors: missing files, lengths that disagree, ids outside [0, vocab_size) when the file says
/// vocab_size.
Dataset load_dataset(const std::filesystem::path& folder);

/// The documents named, in that order; info is kept.
Dataset select_documents(const Dataset& dataset, std::span<const int64_t> documents);

/// Number of documents before the one boundary between training and validation (PREP-21):
/// training is [0, boundary), validation the rest. Both have at least one document when 0 < share
/// and there are two. Error when validation_share is outside [0, 1).
int64_t split_boundary(int64_t num_documents, double validation_share);

/// Documents in order, greedily packed into rows of at most `row_tokens`; a document longer than
/// that is cut (ids and mask alike). Padding is never added. Order is that of `order` (empty: all).
struct PackedPlan {
  struct Piece {
    int64_t document = 0, length = 0;
    bool operator==(const Piece&) const = default;
  };
  std::vector<std::vector<Piece>> rows;
};
PackedPlan pack_documents(const Dataset& dataset, int64_t row_tokens,
                          std::span<const int64_t> order = {});

/// Document order of an epoch, keyed by (seed, epoch).
std::vector<int64_t> shuffled_documents(int64_t num_documents, uint64_t seed, int64_t epoch);

}  // namespace dflash::data
