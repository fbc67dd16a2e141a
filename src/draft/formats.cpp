#include "draft/formats.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error_context.h"
#include "base/files.h"
#include "draft/deepspec.h"
#include "draft/gguf_drafter.h"
#include "draft/zlab.h"

namespace dflash::draft {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<Format, std::string_view>, 4> kNames = {
    {{Format::kZlab, "zlab"},
     {Format::kSpeculators, "speculators"},
     {Format::kDeepSpec, "deepspec"},
     {Format::kGguf, "gguf"}}};

bool is_gguf(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::array<char, 4> magic{};
  return stream.read(magic.data(), magic.size()) && std::string_view(magic.data(), 4) == "GGUF";
}

/// The rows that the drafter's logits come from: its own head, or the target's. Undefined when
/// neither is there.
at::Tensor head_rows(const Drafter& drafter, const at::Tensor& target_VD) {
  const std::vector<int64_t>& ids = drafter.spec().draft_ids;
  if (drafter.own_tables().head_VD.defined()) return drafter.own_tables().head_VD;
  if (!target_VD.defined() || ids.empty()) return target_VD;
  return target_VD.index_select(0, at::tensor(ids, at::kLong));
}

const at::Tensor& needed(const at::Tensor& table, Format format, const char* what) {
  if (!table.defined()) {
    fail("export: {}: this form holds {}\n  hint: give --target", format_name(format), what);
  }
  return table;
}

// Whether the public keys alone give the same layers.
bool public_rules_suffice(const DraftSpec& spec) {
  Json config = zlab_config(spec, nn::Compute::kF32);
  config["dflash_cpp"].erase("layers");
  const DraftSpec theirs = parse_zlab_config(config, "config.json");
  for (size_t l = 0; l < spec.rule.layers.size(); ++l) {
    const block::LayerRule &a = spec.rule.layers[l], &b = theirs.rule.layers[l];
    if (a.window != b.window || a.in_block != b.in_block) return false;
    if (a.window > 0 && a.bound != b.bound) return false;
  }
  return true;
}

std::vector<std::string> zlab_limits(const Drafter& drafter) {
  const DraftSpec& spec = drafter.spec();
  if (!spec.rope.frequency_factors.empty()) return {"a list of rotary frequency factors"};
  std::vector<std::string> limits;
  if (!public_rules_suffice(spec))
    limits.emplace_back("windows or blocks that its keys cannot say");
  if (spec.rule.slot_shift == 1) limits.emplace_back("anchor-first slots");
  if (drafter.own_tables().any()) limits.emplace_back("own tables (z-lab's are the target's)");
  if (spec.hidden_size != spec.target_hidden_size) {
    limits.emplace_back("a hidden size other than the target's");
  }
  return limits;
}

}  // namespace

std::string_view format_name(Format format) {
  for (const auto& [known, name] : kNames) {
    if (known == format) return name;
  }
  DF_ASSERT(false, "format {}", static_cast<int>(format));
}

Format parse_format(std::string_view name) {
  for (const auto& [format, known] : kNames) {
    if (known == name) return format;
  }
  fail("format: expected zlab, speculators, deepspec or gguf, got {}", name);
}

Format recognise(const fs::path& path) {
  if (!fs::exists(path)) fail("no such drafter: {}", path.string());
  if (!fs::is_directory(path)) {
    if (is_gguf(path)) return Format::kGguf;
    fail("not a drafter: {}: expected a folder or a GGUF file", path.string());
  }
  if (!fs::exists(path / "config.json")) {
    fail("not a drafter: {}: expected config.json and model.safetensors", path.string());
  }
  const Json config = read_json(path / "config.json");
  if (config.contains("speculators_model_type")) return Format::kSpeculators;
  return is_deepspec_config(config) ? Format::kDeepSpec : Format::kZlab;
}

std::shared_ptr<Drafter> load_drafter(const fs::path& path, nn::Compute compute) {
  return naming(path.string(), [&]() -> std::shared_ptr<Drafter> {
    switch (recognise(path)) {
      case Format::kGguf:
        return load_gguf_drafter(path, compute);
      case Format::kSpeculators:
        return load_speculators(path, compute);
      case Format::kZlab:
      case Format::kDeepSpec:
        break;
    }
    return load_zlab(path, compute);
  });
}

DraftSpec read_drafter_spec(const fs::path& path) {
  return naming(path.string(), [&] {
    switch (recognise(path)) {
      case Format::kGguf:
        return read_gguf_drafter(path);
      case Format::kSpeculators:
        return read_speculators_config(path);
      case Format::kZlab:
      case Format::kDeepSpec:
        break;
    }
    return read_zlab_config(path);
  });
}

std::vector<std::string> format_limits(const Drafter& drafter, Format format) {
  switch (format) {
    case Format::kGguf:
      return gguf_limits(drafter);
    case Format::kSpeculators:
      return speculators_limits(drafter);
    case Format::kDeepSpec:
      return deepspec_limits(drafter);
    case Format::kZlab:
      break;
  }
  return zlab_limits(drafter);
}

void export_drafter(const Drafter& drafter, const fs::path& path, Format format,
                    nn::Compute storage, const TargetParts& target) {
  const std::vector<std::string> limits = format_limits(drafter, format);
  if (!limits.empty()) {
    fail("export: {} cannot hold this drafter: {}\n  hint: its programs would run another model",
         format_name(format), fmt::join(limits, "; "));
  }
  const at::Tensor head_VD = head_rows(drafter, target.head_VD);
  const OwnTables& own = drafter.own_tables();
  const bool reduced = !drafter.spec().draft_ids.empty();
  switch (format) {
    case Format::kZlab:
      return save_zlab(drafter, path, storage);
    case Format::kSpeculators:
      if (reduced) needed(head_VD, format, "the head's rows of a reduced vocabulary");
      return save_speculators(drafter, path, storage, target.verifier, head_VD);
    case Format::kDeepSpec:
      needed(head_VD, format, "tables");
      return save_deepspec(
          drafter, path, storage,
          {own.embed_VD.defined() ? own.embed_VD : needed(target.embed_VD, format, "tables"),
           head_VD});
    case Format::kGguf:
      if (reduced || own.embed_VD.defined()) needed(head_VD, format, "the drafter's head");
      return save_gguf_drafter(drafter, path, storage,
                               {target.tokenizer, head_VD, target.max_positions});
  }
}

bool drop_borrowed_tables(Drafter& drafter, const at::Tensor& embed_VD, const at::Tensor& head_VD) {
  OwnTables own = drafter.own_tables();
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() && b.defined() && a.sizes() == b.sizes() &&
           at::equal(a.to(at::kFloat), b.to(at::kFloat));
  };
  const bool head = head_VD.defined() && own.head_VD.defined();
  const std::vector<int64_t>& ids = drafter.spec().draft_ids;
  bool dropped = false;
  if (head && same(own.head_VD,
                   ids.empty() ? head_VD : head_VD.index_select(0, at::tensor(ids, at::kLong)))) {
    own.head_VD = at::Tensor();
    dropped = true;
  }
  if (same(own.embed_VD, embed_VD)) {
    own.embed_VD = at::Tensor();
    dropped = true;
  }
  if (dropped) drafter.set_own_tables(std::move(own));
  return dropped;
}

}  // namespace dflash::draft
