// inspect PATH: says what a path is and prints what a person wants to know of it.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "cli/drafters.h"
#include "cli/inspect.h"
#include "data/dataset.h"
#include "draft/formats.h"
#include "io/gguf.h"
#include "io/jsonl.h"
#include "io/records.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

Json read_object(const fs::path& path) {
  Json json = read_json(path);
  if (!json.is_object()) {
    fail("{}: expected an object, got {}", path.string(), json.type_name());
  }
  return json;
}

Json describe_gguf(const fs::path& path) {
  const auto file = io::GgufFile::open(path);
  Json tensors = Json::array();
  for (const auto& tensor : file->tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", io::gguf_type_name(tensor.type)},
                       {"shape", tensor.shape}});
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
    tensors.push_back(
        {{"name", tensor.name}, {"type", io::dtype_name(tensor.dtype)}, {"shape", tensor.shape}});
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
  const auto spec = draft::read_drafter_spec(path);
  const auto format = draft::recognise(path);
  Json json = format == draft::Format::kGguf ? describe_gguf(path) : describe_safetensors(path);
  json["kind"] = "drafter";
  json["format"] = draft::format_name(format);
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

/// What a run or checkpoint says of itself while files of it may still be missing.
Json state_of(const fs::path& checkpoint) {
  if (!fs::exists(checkpoint / "state.json")) return Json::object();
  Json state = read_object(checkpoint / "state.json");
  for (const char* key : {"options", "machine", "schedule"}) state.erase(key);
  return state;
}

bool is_checkpoint(const fs::path& path) {
  return !fs::exists(path / "config.json") &&
         (fs::exists(path / "state.json") || fs::is_directory(path / "model"));
}

Json describe_checkpoint(const fs::path& path) {
  const bool complete = fs::exists(path / "COMPLETE");
  Json json = complete ? describe_drafter(path / "model") : Json::object();
  json["kind"] = complete ? "checkpoint" : "unfinished checkpoint (no COMPLETE): nothing reads it";
  json["state"] = state_of(path);
  return json;
}

/// Step of the last line of metrics.jsonl, validation lines included; 0 before the first.
int64_t last_step(const fs::path& metrics) {
  int64_t step = 0;
  if (!fs::exists(metrics)) return step;
  io::read_jsonl(metrics, {}, [&](int64_t, const Json& line) {
    if (!line.is_object()) {
      throw io::BadRecord(fmt::format("expected an object, got {}", line.type_name()));
    }
    const auto found = line.find("step");
    if (found == line.end()) return;
    if (!found->is_number_integer()) {
      throw io::BadRecord(fmt::format("\"step\": expected a count, got {}", found->dump()));
    }
    step = found->get<int64_t>();
  });
  return step;
}

Json describe_run(const fs::path& path) {
  Json json = {{"kind", "run"},
               {"steps_done", last_step(path / "metrics.jsonl")},
               {"drafter", "none yet: no checkpoint is complete"},
               {"checkpoints", Json::array()},
               {"info", read_object(path / "run.json")}};
  const fs::path folder = path / "checkpoints";
  for (const auto& entry : train::list_checkpoints(folder)) {
    json["checkpoints"].push_back(entry.path.filename().string());
  }
  if (!json["checkpoints"].empty()) json["drafter"] = resolve_drafter(path).string();
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (is_checkpoint(entry.path()) && !fs::exists(entry.path() / "COMPLETE")) {
        json["unfinished"].push_back(entry.path().filename().string());
      }
    }
  }
  return json;
}

Json describe_features(const fs::path& path) {
  const Json info = read_object(path / "features.json");
  const bool complete = info.value("complete", false);
  return {{"kind", complete ? "features" : "unfinished features: capture goes on with them"},
          {"info", info}};
}

/// A report that some verb wrote, as it stands.
Json describe_report(const fs::path& path) {
  Json json = {{"kind", "report"}};
  json.update(read_object(path));
  return json;
}

/// What a quickstart left, with its parts.
Json describe_quickstart(const fs::path& path) {
  Json json = describe_report(path / "summary.json");
  json["kind"] = "quickstart";
  for (const char* part : {"answers.jsonl", "dataset", "features", "run", "eval.json"}) {
    if (fs::exists(path / part)) json["parts"].push_back((path / part).string());
  }
  return json;
}

bool is_file_of_run(const fs::path& path) {
  const fs::path name = path.filename();
  return (name == "run.json" || name == "metrics.jsonl" || name == "checkpoints") &&
         fs::exists(path.parent_path() / "run.json");
}

Json describe(fs::path path) {
  if (!fs::exists(path)) fail("no such file or folder: {}", path.string());
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  if (is_file_of_run(path)) {
    return describe_run(path.has_parent_path() ? path.parent_path() : fs::path("."));
  }
  const bool is_json = path.extension() == ".json";
  if (path.extension() == ".jsonl" || (is_json && io::is_record_array(path))) {
    return describe_records(path);
  }
  if (is_json) return describe_report(path);
  if (path.extension() == ".gguf") {
    const std::string architecture = io::GgufFile::open(path)->string("general.architecture");
    return architecture == "dflash" ? describe_drafter(path) : describe_gguf(path);
  }
  if (path.extension() == ".safetensors") return describe_safetensors(path);
  if (fs::exists(path / "dataset.json")) return describe_dataset(path);
  if (fs::exists(path / "features.json")) return describe_features(path);
  if (fs::exists(path / "run.json")) return describe_run(path);
  if (is_checkpoint(path)) return describe_checkpoint(path);
  if (fs::exists(path / "summary.json")) return describe_quickstart(path);
  const fs::path config = path / "config.json";
  if (!fs::exists(config)) {
    fail(
        "cannot tell what {} is\n  hint: a target or drafter (folder or .gguf), a dataset, "
        "features, run, checkpoint or quickstart folder, a .jsonl or .json file",
        path.string());
  }
  const std::string architecture = read_object(config).value("architectures", Json::array()).dump();
  if (architecture.find("DFlash") != std::string::npos ||
      draft::recognise(path) != draft::Format::kZlab) {
    return describe_drafter(path);
  }
  Json json = describe_safetensors(path);
  json["kind"] = "model";
  json["config"] = read_json(config);
  return json;
}

void print_lines(const std::string& text, int indent) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) fmt::print("{:{}}{}\n", "", indent, line);
}

/// Objects, lists of objects and texts of several lines are indented, everything else is a line.
void print_fields(const Json& json, int indent) {
  for (const auto& [key, value] : json.items()) {
    if (key == "tensors" || key == "command_line") continue;  // the options stand in config.toml
    const bool several = value.is_array() && !value.empty() && value[0].is_object();
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if ((!value.is_object() || value.empty()) && !several && text.find('\n') == std::string::npos) {
      fmt::print("{:{}}{:<{}} {}\n", "", indent, key, std::max(22 - indent, 1), text);
      continue;
    }
    fmt::print("{:{}}{}\n", "", indent, key);
    if (value.is_string()) print_lines(text, indent + 2);
    if (value.is_object()) print_fields(value, indent + 2);
    for (size_t i = 0; several && i < value.size(); ++i) print_lines(value[i].dump(), indent + 2);
  }
}

void print_text(const Json& json) {
  print_fields(json, 0);
  for (const Json& tensor : json.value("tensors", Json::array())) {
    fmt::print("  {:<48} {:<6} {}\n", tensor["name"].get<std::string>(),
               tensor["type"].get<std::string>(), tensor["shape"].dump());
  }
}

}  // namespace

int inspect_path(int argc, char** argv) {
  VerbParser parser("inspect", "What a target, drafter, dataset, features, run or checkpoint is.");
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
