#include "train/ranks.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace dflash::train {
namespace {

using Row = RowStream::Row;

int64_t cost(int64_t tokens, int64_t anchors, const Dealing& dealing) {
  return tokens + anchors * dealing.block_size;
}

int64_t cost_of_piece(const Row& row, size_t piece, const Dealing& dealing) {
  return cost(row.pieces[piece].length, row.piece_anchors[piece], dealing);
}

int64_t cost_of(const Row& row, const Dealing& dealing) {
  int64_t sum = 0;
  for (size_t p = 0; p < row.pieces.size(); ++p) sum += cost_of_piece(row, p, dealing);
  return sum;
}

/// An empty row that begins where `row` has `tokens` tokens behind it.
Row rest_of(const Row& row, int64_t tokens) {
  Row rest;
  rest.epoch = row.epoch;
  rest.noise_document = row.noise_document;
  rest.noise_token = row.noise_token + tokens;
  return rest;
}

/// `parts` rows of about the same work, fewer when there are fewer documents.
std::vector<Row> cut(const Row& row, int64_t parts, const Dealing& dealing) {
  const int64_t whole = cost_of(row, dealing);
  std::vector<Row> out = {rest_of(row, 0)};
  int64_t done = 0, tokens = 0;
  for (size_t p = 0; p < row.pieces.size(); ++p) {
    const int64_t next = cost_of_piece(row, p, dealing);
    const auto made = static_cast<int64_t>(out.size());
    const int64_t border = whole * made / parts;  // between this part and the next
    const bool beyond = 2 * done + next > 2 * border;
    if (!out.back().pieces.empty() && made < parts && beyond) out.push_back(rest_of(row, tokens));
    out.back().pieces.push_back(row.pieces[p]);
    out.back().piece_anchors.push_back(row.piece_anchors[p]);
    out.back().anchors += row.piece_anchors[p];
    done += next;
    tokens += row.pieces[p].length;
  }
  return out;
}

/// Rows of at most a rank's share, where documents allow it.
std::vector<Row> cut_large(const std::vector<Row>& rows, const Dealing& dealing) {
  int64_t whole = 0;
  for (const Row& row : rows) whole += cost_of(row, dealing);
  const int64_t share = std::max<int64_t>(1, (whole + dealing.world - 1) / dealing.world);
  std::vector<Row> out;
  for (const Row& row : rows) {
    for (Row& part : cut(row, (cost_of(row, dealing) + share - 1) / share, dealing)) {
      out.push_back(std::move(part));
    }
  }
  return out;
}

/// In four lanes over 32-bit words; any changed bit changes it.
uint64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
  const size_t size = flat.nbytes();
  std::array<uint64_t, 4> lanes = {1, 2, 3, size};
  for (size_t at = 0; at < size; at += 4 * sizeof(uint32_t)) {
    std::array<uint32_t, 4> words = {};
    std::memcpy(words.data(), bytes + at, std::min(sizeof(words), size - at));
    for (size_t lane = 0; lane < 4; ++lane) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * 0x9e3779b97f4a7c15ULL;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  uint64_t hash = 0;
  for (const uint64_t lane : lanes) hash = (hash ^ lane) * 0xbf58476d1ce4e5b9ULL + 1;
  return hash ^ (hash >> 31);
}

}  // namespace

std::vector<std::vector<Row>> deal_rows(const std::vector<Row>& rows, const Dealing& dealing) {
  std::vector<std::vector<Row>> hands(static_cast<size_t>(dealing.world));
  if (dealing.world == 1) {
    hands.front() = rows;
    return hands;
  }
  const std::vector<Row> parts = cut_large(rows, dealing);
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return cost_of(parts[a], dealing) > cost_of(parts[b], dealing);
  });
  std::vector<int64_t> load(hands.size(), 0);
  std::vector<std::set<size_t>> taken(hands.size());
  for (const size_t part : order) {  // the largest first, to the one that has least
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    load[least] += cost_of(parts[part], dealing);
    taken[least].insert(part);
  }
  for (size_t h = 0; h < hands.size(); ++h) {
    const auto rank = (h + static_cast<size_t>(dealing.turn)) % hands.size();
    for (const size_t part : taken[h]) hands[rank].push_back(parts[part]);
  }
  return hands;
}

void sum_gradients(Comm& comm, const std::map<std::string, at::Tensor>& parameters) {
  if (comm.alone()) return;
  std::vector<std::span<float>> parts;
  for (const auto& [name, parameter] : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(parameter.detach());
    DF_ASSERT(gradient.scalar_type() == at::kFloat, "gradient of {} is not f32", name);
    parts.emplace_back(gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel()));
  }
  comm.all_reduce_sum(parts);
}

std::vector<int64_t> gather_numbers(Comm& comm, const std::vector<int64_t>& own) {
  std::set<int64_t> found;
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int64_t));
  for (const std::string& of_rank : comm.all_gather(bytes)) {
    std::vector<int64_t> numbers(of_rank.size() / sizeof(int64_t));
    of_rank.copy(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(int64_t));
    found.insert(numbers.begin(), numbers.end());
  }
  return {found.begin(), found.end()};
}

void expect_same_settings(Comm& comm, const Json& own) {
  if (comm.alone()) return;
  const std::vector<std::string> all = comm.all_gather(own.flatten().dump());
  const Json first = Json::parse(all.front());
  for (size_t r = 1; r < all.size(); ++r) {
    const Json other = Json::parse(all[r]);
    Json keys = first;
    keys.update(other);
    for (const auto& [key, unused] : keys.items()) {
      const Json a = first.value(key, Json()), b = other.value(key, Json());
      if (a == b) continue;
      const bool machine = key.find("/machine/") != std::string::npos;
      fail("ranks: {}: rank 0 has {}, rank {} has {}\n  hint: {}", key.substr(1), a.dump(), r,
           b.dump(),
           machine ? "--threads sets the threads of every rank, DFLASH_ISA the kernels"
                   : "start all ranks with the same program, options and data");
    }
  }
}

void expect_same_tensors(Comm& comm, const std::map<std::string, at::Tensor>& tensors,
                         std::string_view when) {
  if (comm.alone()) return;
  std::vector<std::pair<std::string, at::Tensor>> list(tensors.begin(), tensors.end());
  std::vector<uint64_t> own(list.size());
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < list.size(); ++i) own[i] = hash_of(list[i].second);
  const auto* bytes = reinterpret_cast<const char*>(own.data());
  const auto all = comm.all_gather(std::string(bytes, own.size() * sizeof(uint64_t)));
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].size() != all[0].size()) fail("ranks: rank {} has other tensors than rank 0", r);
    for (size_t i = 0; i < list.size(); ++i) {
      constexpr size_t kSize = sizeof(uint64_t);
      if (all[r].compare(i * kSize, kSize, all[0], i * kSize, kSize) == 0) continue;
      fail(
          "ranks: {}: {} of rank {} is not that of rank 0\n  hint: the ranks need the same files "
          "and CPUs of one kind",
          when, list[i].first, r);
    }
  }
}

std::optional<CheckpointEntry> common_checkpoint(Comm& comm, const std::filesystem::path& folder) {
  auto latest = comm.leads() ? latest_checkpoint(folder) : std::nullopt;
  const int64_t step = comm.lead(latest ? latest->step : int64_t{-1});
  if (comm.leads() || step < 0) return latest;
  for (const CheckpointEntry& entry : list_checkpoints(folder)) {
    if (entry.step == step) return entry;
  }
  fail(
      "ranks: {}: expected rank 0's checkpoint of step {}, found none on rank {}\n  hint: the run "
      "folder has to be the same for all ranks: on a shared disk, or copied",
      folder.string(), step, comm.rank());
}

}  // namespace dflash::train
