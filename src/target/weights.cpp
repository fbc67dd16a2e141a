#include "target/weights.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "io/fingerprint.h"
#include "nn/finite.h"
#include "nn/packed.h"
#include "nn/tensor_io.h"

namespace dflash::target {
namespace {

constexpr size_t kMaxListed = 6;

std::string listed(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxListed);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

class FolderWeights final : public Weights {
 public:
  FolderWeights(std::shared_ptr<const io::Checkpoint> checkpoint, const LeftOut& left_out)
      : checkpoint_(std::move(checkpoint)) {
    where_ = checkpoint_->path().string();
    const auto skip = [&](const std::string& name) {
      return name.ends_with(".rotary_emb.inv_freq") || (left_out && left_out(name));
    };
    const std::string prefix = trunk_prefix(skip);
    for (const io::TensorView& view : checkpoint_->tensors()) {
      if (skip(view.name)) continue;
      add({canonical(view.name, prefix), view.name, std::string(io::dtype_name(view.dtype)),
           view.shape, view.bytes});
    }
  }

  at::Tensor read(const std::string& name) const override {
    const WeightInfo* info = find(name);
    DF_ASSERT(info != nullptr, "name={}", name);
    at::Tensor values = nn::to_tensor(checkpoint_->get(info->file_name), checkpoint_);
    nn::expect_finite(values, where_, info->file_name);
    return values;
  }

 private:
  std::string trunk_prefix(const LeftOut& skip) const {
    constexpr std::string_view kTable = "embed_tokens.weight";
    std::vector<std::string> found;
    for (const io::TensorView& view : checkpoint_->tensors()) {
      if (view.name.ends_with(kTable) && !skip(view.name)) found.push_back(view.name);
    }
    if (found.size() != 1) {
      fail("target weights: {}: expected one tensor whose name ends in {}, got {}", where_, kTable,
           found.empty() ? "none" : listed(found));
    }
    return found[0].substr(0, found[0].size() - kTable.size());
  }

  static std::string canonical(const std::string& name, const std::string& prefix) {
    if (name.ends_with("lm_head.weight")) return "lm_head.weight";
    if (!prefix.empty() && name.starts_with(prefix)) return name.substr(prefix.size());
    return name;
  }

  std::shared_ptr<const io::Checkpoint> checkpoint_;
};

class GgufWeights final : public Weights {
 public:
  GgufWeights(std::shared_ptr<const io::GgufFile> file, GgufNames names)
      : file_(std::move(file)), names_(std::move(names)) {
    where_ = file_->path().string();
    for (const io::GgufTensor& tensor : file_->tensors()) {
      if (names_.left_out && names_.left_out(tensor.name)) continue;
      add({names_.canonical(tensor.name).value_or(tensor.name), tensor.name,
           std::string(io::gguf_type_name(tensor.type)), tensor.shape, tensor.bytes});
    }
  }

  at::Tensor read(const std::string& name) const override {
    const WeightInfo* info = find(name);
    DF_ASSERT(info != nullptr, "name={}", name);
    const at::Tensor values = nn::to_tensor(file_->get(info->file_name));
    nn::expect_finite(values, where_, info->file_name);
    return names_.restore(name, values);
  }

  std::optional<nn::BlockWeight> read_blocks(const std::string& name,
                                             nn::Compute compute) const override {
    const WeightInfo* info = find(name);
    DF_ASSERT(info != nullptr, "name={}", name);
    if (!nn::PackedWeight::keeps_blocks(compute) || !names_.moves_rows(name)) return std::nullopt;
    const auto blocks = nn::to_blocks(file_->get(info->file_name));
    if (!blocks) return std::nullopt;
    nn::expect_finite(blocks->scale_OB, where_, info->file_name);
    if (blocks->least_OB.defined()) nn::expect_finite(blocks->least_OB, where_, info->file_name);
    return blocks->map([&](const at::Tensor& part) { return names_.restore(name, part); });
  }

 private:
  std::shared_ptr<const io::GgufFile> file_;
  GgufNames names_;
};

class MemoryWeights final : public Weights {
 public:
  explicit MemoryWeights(std::map<std::string, at::Tensor> tensors) : tensors_(std::move(tensors)) {
    where_ = "memory";
    for (auto& [name, tensor] : tensors_) {
      tensor = tensor.contiguous();
      const io::TensorView view = nn::to_view(name, tensor);
      add({name, name, std::string(io::dtype_name(view.dtype)), view.shape, view.bytes});
    }
  }

  at::Tensor read(const std::string& name) const override { return tensors_.at(name); }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace

std::optional<nn::BlockWeight> Weights::read_blocks(const std::string&, nn::Compute) const {
  return std::nullopt;
}

const WeightInfo* Weights::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &list_[found->second];
}

void Weights::add(WeightInfo info) {
  const auto [known, inserted] = index_.emplace(info.name, list_.size());
  if (!inserted) {
    fail("target weights: {}: {} and {} are the same weight", where_,
         list_[known->second].file_name, info.file_name);
  }
  list_.push_back(std::move(info));
}

std::string Weights::dtypes() const {
  std::map<std::string, size_t> bytes;
  for (const WeightInfo& info : list_) bytes[info.dtype] += info.bytes.size();
  std::vector<std::pair<size_t, std::string>> order;
  for (const auto& [dtype, size] : bytes) order.emplace_back(size, dtype);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> names;
  for (const auto& [size, dtype] : order) names.push_back(dtype);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::shared_ptr<const Weights> folder_weights(std::shared_ptr<const io::Checkpoint> checkpoint,
                                              const LeftOut& left_out) {
  return std::make_shared<FolderWeights>(std::move(checkpoint), left_out);
}

std::shared_ptr<const Weights> gguf_weights(std::shared_ptr<const io::GgufFile> file,
                                            GgufNames names) {
  return std::make_shared<GgufWeights>(std::move(file), std::move(names));
}

std::shared_ptr<const Weights> memory_weights(std::map<std::string, at::Tensor> tensors) {
  return std::make_shared<MemoryWeights>(std::move(tensors));
}

std::string fingerprint_of(const TargetConfig& config, const std::string& details,
                           const Weights& weights) {
  io::Fingerprint print("target");
  print.add(details)
      .add(config.family)
      .add(config.num_layers)
      .add(config.num_heads)
      .add(config.num_kv_heads);
  print.add(config.head_dim)
      .add(fmt::format("{:.9g} {:.9g}", config.rope_theta, config.rms_norm_eps));
  std::vector<const WeightInfo*> order;
  for (const WeightInfo& info : weights.list()) order.push_back(&info);
  std::sort(order.begin(), order.end(),
            [](const WeightInfo* a, const WeightInfo* b) { return a->name < b->name; });
  for (const WeightInfo* info : order) {
    print.add_tensor(info->name, info->dtype, info->shape, info->bytes);
  }
  return print.hex();
}

void check_weights(const Weights& weights, const std::vector<WeightSpec>& expected) {
  std::vector<std::string> missing, misshapen, unknown;
  std::map<std::string, bool> known;
  for (const WeightSpec& spec : expected) {
    known[spec.name] = true;
    const WeightInfo* info = weights.find(spec.name);
    if (!info) {
      missing.push_back(spec.name);
    } else if (without_ones(info->shape) != without_ones(spec.shape)) {
      misshapen.push_back(
          fmt::format("{}: expected {}, got {}", info->file_name, spec.shape, info->shape));
    }
  }
  for (const WeightInfo& info : weights.list()) {
    if (!known.contains(info.name)) unknown.push_back(info.file_name);
  }
  std::string problems;
  if (!missing.empty()) problems += "\n  missing tensors: " + listed(missing);
  if (!misshapen.empty()) problems += "\n  wrong shapes: " + listed(misshapen);
  if (!unknown.empty()) problems += "\n  unknown tensors: " + listed(unknown);
  if (problems.empty()) return;
  fail(
      "target weights: {}: the tensors do not fit the model's config{}\n  hint: is this the config "
      "of these weights, and does the family support all it switches on?",
      weights.where(), problems);
}

}  // namespace dflash::target
