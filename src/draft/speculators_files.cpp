#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "draft/folder_tensors.h"
#include "draft/speculators.h"
#include "nn/shapes.h"
#include "nn/tensor_io.h"

namespace dflash::draft {
namespace {

namespace fs = std::filesystem;

// Copies of the target's own tensors that some versions save; not the drafter's.
const std::vector<std::string> kVerifierTensors = {"verifier_lm_head.weight",
                                                   "verifier_norm.weight"};

// d2t holds offsets; t2d must mark exactly the ids that they give.
std::vector<int64_t> read_vocabulary(const io::Checkpoint& file, const DraftSpec& spec,
                                     int64_t draft_vocab_size) {
  const std::string where = file.path().string();
  const io::TensorView* marks = file.find("t2d");
  auto ids = read_ids(file, "d2t");
  if (!ids && !marks && draft_vocab_size == spec.vocab_size) return {};
  if (!ids || static_cast<int64_t>(ids->size()) != draft_vocab_size) {
    fail("{}: d2t: expected draft_vocab_size {} offsets, got {}", where, draft_vocab_size,
         ids ? fmt::format("{}", ids->size()) : "none");
  }
  for (size_t i = 0; i < ids->size(); ++i) (*ids)[i] += static_cast<int64_t>(i);
  if (marks == nullptr) return *ids;
  const bool fits = marks->dtype == io::Dtype::kBool && marks->numel() == spec.vocab_size;
  int64_t marked = 0;
  for (size_t i = 0; fits && i < marks->bytes.size(); ++i) {
    marked += marks->bytes[i] != std::byte{0} ? 1 : 0;
  }
  const bool agree =
      fits && marked == draft_vocab_size && std::all_of(ids->begin(), ids->end(), [&](int64_t id) {
        return id >= 0 && id < spec.vocab_size &&
               marks->bytes[static_cast<size_t>(id)] != std::byte{0};
      });
  if (!agree) fail("{}: t2d: expected marks at the {} ids of d2t, got others", where, ids->size());
  return *ids;
}

struct Opened {
  DraftSpec spec;
  std::shared_ptr<const io::Checkpoint> file;
};

Opened open_folder(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  const Json config = read_json(path);
  Opened opened{parse_speculators_config(config, path.string()), io::Checkpoint::open(folder)};
  DraftSpec& spec = opened.spec;
  const auto size = config.find("draft_vocab_size");
  const int64_t draft_vocab_size =
      size == config.end() || size->is_null() ? 32000 : size->get<int64_t>();
  if (const io::TensorView* fc = opened.file->find("fc.weight")) {
    spec.target_hidden_size = target_hidden_size(folder.string(), spec, fc->shape);
  }
  spec.draft_ids = read_vocabulary(*opened.file, spec, draft_vocab_size);
  check_spec(spec);
  return opened;
}

void add_limit(std::vector<std::string>& limits, bool applies, const char* what) {
  if (applies) limits.emplace_back(what);
}

}  // namespace

DraftSpec read_speculators_config(const fs::path& folder) {
  return open_folder(folder).spec;
}

std::shared_ptr<Drafter> load_speculators(const fs::path& folder, nn::Compute compute) {
  const Opened opened = open_folder(folder);
  std::vector<std::string> skip = kVerifierTensors;
  skip.insert(skip.end(), {"d2t", "t2d"});
  FolderTensors tensors = read_folder_tensors(opened.file, skip);
  auto drafter = Drafter::from_weights(opened.spec, compute, tensors.parameters);
  drafter->set_own_tables(std::move(tensors.tables));
  drafter->pack();
  return drafter;
}

std::vector<std::string> speculators_limits(const Drafter& drafter) {
  const DraftSpec& spec = drafter.spec();
  bool query = false, causal_full = false, causal = false, bidirectional = false;
  for (const block::LayerRule& rule : spec.rule.layers) {
    const bool is_causal = rule.in_block == block::InBlock::kCausal;
    query = query || (rule.window > 0 && rule.bound == block::Bound::kQuery);
    causal_full = causal_full || (rule.window == 0 && is_causal);
    causal = causal || (rule.window > 0 && is_causal);
    bidirectional = bidirectional || (rule.window > 0 && !is_causal);
  }
  std::vector<std::string> limits;
  add_limit(limits, query, "a window counted from the query (theirs is counted from the anchor)");
  add_limit(limits, causal_full, "a full layer with a causal block");
  add_limit(limits, causal && bidirectional, "causal and bidirectional windows in one drafter");
  add_limit(limits, spec.hidden_size != spec.target_hidden_size,
            "a hidden size other than the target's");
  add_limit(limits, drafter.own_tables().embed_VD.defined(),
            "an own embedding table (theirs is always the verifier's)");
  add_limit(limits, drafter.own_tables().head_VD.defined() && spec.draft_ids.empty(),
            "an own head over the whole vocabulary (theirs is then the verifier's)");
  add_limit(limits, !spec.rope.frequency_factors.empty(), "a list of rotary frequency factors");
  return limits;
}

void save_speculators(const Drafter& drafter, const fs::path& folder, nn::Compute storage,
                      const Verifier& verifier, const at::Tensor& head_VD) {
  const c10::NoGradGuard no_grad;
  const DraftSpec& spec = drafter.spec();
  const Json config = speculators_config(spec, storage, verifier);
  const at::ScalarType dtype = storage == nn::Compute::kF32 ? at::kFloat : at::kBFloat16;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : drafter.parameters()) {
    tensors[name] = tensor.detach().to(dtype);
  }
  if (!spec.draft_ids.empty()) {
    // Their rows follow the marks of t2d, so the vocabulary is written in ascending order.
    const auto size = static_cast<int64_t>(spec.draft_ids.size());
    nn::expect_shape(head_VD, {size, spec.hidden_size}, "head of the draft vocabulary");
    std::vector<int64_t> order(spec.draft_ids.size()), offsets;
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return spec.draft_ids[a] < spec.draft_ids[b]; });
    at::Tensor marks = at::zeros({spec.vocab_size}, at::kBool);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t id = spec.draft_ids[order[i]];
      offsets.push_back(id - i);
      marks.data_ptr<bool>()[id] = true;
    }
    tensors["t2d"] = marks;
    tensors["d2t"] = at::tensor(offsets, at::kLong);
    tensors["lm_head.weight"] =
        head_VD.index_select(0, at::tensor(order, at::kLong)).to(dtype).contiguous();
  }
  make_folder(folder);
  nn::save_tensors(folder / "model.safetensors", tensors);
  write_json(folder / "config.json", config);
}

}  // namespace dflash::draft
