// inspect PATH: says what a path is and prints what a person wants to know of it.
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "cli/drafters.h"
#include "cli/inspect.h"
#include "data/dataset.h"
#include "draft/zlab.h"
#include "io/gguf.h"
#include "io/safetensors.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

Json shape_json(const std::vector<int64_t>& shape) {
  return shape;
}

Json describe_gguf(const fs::path& path) {
  const auto file = io::GgufFile::open(path);
  Json tensors = Json::array();
  for (const auto& tensor : file->tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", io::gguf_type_name(tensor.type)},
                       {"shape", shape_json(tensor.shape)}});
  }
  return {{"kind", "gguf"},
          {"architecture", file->string("general.architecture")},
          {"num_tensors", tensors.size()},
          {"tensors", tensors}};
}

Json describe_safetensors(const fs::path& path) {
  const auto file = io::Checkpoint::open(path);
  Json tensors = Json::array();
  for (const auto& tensor : file->tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", io::dtype_name(tensor.dtype)},
                       {"shape", shape_json(tensor.shape)}});
  }
  return {{"kind", "safetensors"}, {"num_tensors", tensors.size()}, {"tensors", tensors}};
}

Json describe_dataset(const fs::path& path) {
  const auto dataset = data::load_dataset(path);
  const auto tokens = static_cast<double>(std::max<int64_t>(1, dataset.num_tokens()));
  return {{"kind", "dataset"},
          {"documents", dataset.num_documents()},
          {"tokens", dataset.num_tokens()},
          {"supervised", dataset.num_supervised()},
          {"supervised_share", static_cast<double>(dataset.num_supervised()) / tokens},
          {"info", dataset.info}};
}

Json describe_drafter(const fs::path& path) {
  const auto spec = draft::read_zlab_config(path);
  Json json = describe_safetensors(path);
  json["kind"] = "drafter";
  json["layers"] = spec.num_layers;
  json["hidden_size"] = spec.hidden_size;
  json["block_size"] = spec.rule.block_size;
  json["mask_id"] = spec.rule.mask_id;
  json["slot_shift"] = spec.rule.slot_shift;
  json["taps"] = spec.taps;
  json["draft_vocabulary"] =
      spec.draft_ids.empty() ? spec.vocab_size : static_cast<int64_t>(spec.draft_ids.size());
  for (const auto& layer : spec.rule.layers) {
    json["layer_rules"].push_back(
        {{"window", layer.window},
         {"bound", layer.bound == block::Bound::kQuery ? "query" : "anchor"},
         {"in_block", layer.in_block == block::InBlock::kCausal ? "causal" : "bidirectional"}});
  }
  return json;
}

Json describe(const fs::path& path) {
  if (!fs::exists(path)) fail("no such file or folder: {}", path.string());
  if (path.extension() == ".gguf") return describe_gguf(path);
  if (path.extension() == ".safetensors") return describe_safetensors(path);
  if (fs::exists(path / "dataset.json")) return describe_dataset(path);
  if (fs::exists(path / "features.json")) {
    return {{"kind", "features"}, {"info", read_json(path / "features.json")}};
  }
  if (fs::exists(path / "run.json")) {
    return {{"kind", "run"},
            {"drafter", resolve_drafter(path).string()},
            {"info", read_json(path / "run.json")}};
  }
  const fs::path config = path / "config.json";
  if (!fs::exists(config)) {
    fail(
        "cannot tell what {} is\n  hint: a target folder or .gguf, a drafter, dataset, features or "
        "run folder",
        path.string());
  }
  const std::string architecture = read_json(config).value("architectures", Json::array()).dump();
  if (architecture.find("DFlash") != std::string::npos) return describe_drafter(path);
  Json json = describe_safetensors(path);
  json["kind"] = "model";
  json["config"] = read_json(config);
  return json;
}

void print_text(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (key == "tensors") continue;
    fmt::print("{:<18} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const Json& tensor : json.value("tensors", Json::array())) {
    fmt::print("  {:<48} {:<6} {}\n", tensor["name"].get<std::string>(),
               tensor["type"].get<std::string>(), tensor["shape"].dump());
  }
}

}  // namespace

int inspect_path(int argc, char** argv) {
  VerbParser parser("inspect", "What a target, drafter, dataset, feature or run folder is.");
  std::string path;
  bool json = false;
  parser.app().add_option("path", path, "file or folder")->required();
  parser.app().add_flag("--json", json, "as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;
  const Json description = describe(path);
  if (json) {
    print_json(description);
  } else {
    print_text(description);
  }
  return 0;
}

}  // namespace dflash::cli
