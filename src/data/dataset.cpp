#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::data {
namespace {

constexpr uint64_t kShuffleStream = 0x73687566666c65;  // keeps these draws apart from other uses

}  // namespace

int64_t Dataset::num_supervised() const {
  return std::count_if(loss_mask.begin(), loss_mask.end(), [](uint8_t bit) { return bit != 0; });
}

std::span<const int64_t> Dataset::document_ids(int64_t d) const {
  DF_ASSERT(d >= 0 && d < num_documents(), "document {} of {}", d, num_documents());
  return std::span(ids).subspan(offsets[d], offsets[d + 1] - offsets[d]);
}

std::span<const uint8_t> Dataset::document_mask(int64_t d) const {
  DF_ASSERT(d >= 0 && d < num_documents(), "document {} of {}", d, num_documents());
  return std::span(loss_mask).subspan(offsets[d], offsets[d + 1] - offsets[d]);
}

void Dataset::add(const Document& document) {
  if (document.ids.empty()) fail("document {}: expected at least one token", num_documents());
  if (document.ids.size() != document.loss_mask.size()) {
    fail("document {}: expected one mask entry a token, got {} ids and {} mask entries",
         num_documents(), document.ids.size(), document.loss_mask.size());
  }
  ids.insert(ids.end(), document.ids.begin(), document.ids.end());
  loss_mask.insert(loss_mask.end(), document.loss_mask.begin(), document.loss_mask.end());
  offsets.push_back(num_tokens());
  keys.push_back(document.key != 0 ? document.key : content_hash(document.ids, document.loss_mask));
}

uint64_t content_hash(std::span<const int64_t> ids, std::span<const uint8_t> loss_mask) {
  uint64_t hash = mix({ids.size()});
  for (size_t t = 0; t < ids.size(); ++t) {
    hash = mix({hash, static_cast<uint64_t>(ids[t]) * 2 + (loss_mask[t] != 0)});
  }
  return hash;
}

std::string dataset_fingerprint(const Dataset& dataset) {
  uint64_t hash = mix({static_cast<uint64_t>(dataset.num_documents())});
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    hash = mix({hash, content_hash(dataset.document_ids(d), dataset.document_mask(d))});
  }
  return fmt::format("{:016x}", hash);
}

Dataset select_documents(const Dataset& dataset, std::span<const int64_t> documents) {
  Dataset out;
  out.info = dataset.info;
  for (int64_t d : documents) {
    const auto ids = dataset.document_ids(d);
    const auto mask = dataset.document_mask(d);
    out.add({{ids.begin(), ids.end()}, {mask.begin(), mask.end()}, dataset.keys[d]});
  }
  return out;
}

int64_t split_boundary(int64_t num_documents, double validation_share) {
  if (!(validation_share >= 0.0 && validation_share < 1.0)) {
    fail("validation share: expected 0 or more and less than 1, got {}", validation_share);
  }
  if (validation_share == 0.0 || num_documents < 2) return num_documents;
  const auto validation = std::llround(static_cast<double>(num_documents) * validation_share);
  return num_documents - std::clamp<int64_t>(validation, 1, num_documents - 1);
}

PackedPlan pack_documents(const Dataset& dataset, int64_t row_tokens,
                          std::span<const int64_t> order) {
  if (row_tokens < 2) fail("row length: expected at least 2 tokens, got {}", row_tokens);
  std::vector<int64_t> all;
  if (order.empty()) {
    all.resize(dataset.num_documents());
    std::iota(all.begin(), all.end(), 0);
    order = all;
  }
  PackedPlan plan;
  int64_t used = row_tokens;  // opens the first row
  for (int64_t d : order) {
    const auto tokens = static_cast<int64_t>(dataset.document_ids(d).size());
    const int64_t length = std::min(tokens, row_tokens);
    if (used + length > row_tokens) {
      plan.rows.emplace_back();
      used = 0;
    }
    plan.rows.back().push_back({d, length});
    used += length;
  }
  return plan;
}

std::vector<int64_t> shuffled_documents(int64_t num_documents, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(num_documents);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = num_documents - 1; i > 0; --i) {  // Fisher-Yates
    const uint64_t j = uniform_below(
        static_cast<uint64_t>(i) + 1,
        {kShuffleStream, seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(i)});
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace dflash::data
