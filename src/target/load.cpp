#include "target/load.h"

#include <fmt/ranges.h>

#include "base/error_context.h"
#include "base/files.h"
#include "io/gguf.h"
#include "target/config_reader.h"
#include "target/families.h"

namespace dflash::target {
namespace {

namespace fs = std::filesystem;

/// A family is one row here and its own files.
struct Family {
  std::string model_type;         // config.json, of the text part
  std::string gguf_architecture;  // general.architecture
  TargetPtr (*from_folder)(const fs::path&, const ConfigReader&, nn::Compute);
  TargetPtr (*from_gguf)(const GgufPtr&, nn::Compute);
  TransformerConfig (*folder_config)(const ConfigReader&);
  TransformerConfig (*gguf_config)(const io::GgufFile&);
};

const std::vector<Family>& families() {
  static const std::vector<Family> rows = {
      {"llama", "llama", load_llama_folder, load_llama_gguf, llama_config, llama_config},
      {"qwen3", "qwen3", load_qwen3_folder, load_qwen3_gguf, qwen3_config, qwen3_config},
      {"qwen3_moe", "qwen3moe", load_qwen3_folder, load_qwen3_gguf, qwen3_config, qwen3_config},
      {"qwen3_5", "qwen35", load_qwen35_folder, load_qwen35_gguf, qwen35_config, qwen35_config},
      {"qwen3_5_text", "qwen35", load_qwen35_folder, load_qwen35_gguf, qwen35_config,
       qwen35_config},
      {"qwen3_5_moe", "qwen35moe", load_qwen35_folder, load_qwen35_gguf, qwen35_config,
       qwen35_config},
      {"qwen3_5_moe_text", "qwen35moe", load_qwen35_folder, load_qwen35_gguf, qwen35_config,
       qwen35_config}};
  return rows;
}

const Family& find_family(const std::string& name, std::string Family::*key, const fs::path& path) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.*key == name) return family;
    if (known.empty() || known.back() != family.*key) known.push_back(family.*key);
  }
  fail("target: {}: unknown model family {}\n  hint: known are {}", path.string(), name,
       fmt::join(known, ", "));
}

std::shared_ptr<const Target> load_folder(const fs::path& folder, nn::Compute compute) {
  const ConfigReader config(folder);
  const Family& family = find_family(config.string("model_type"), &Family::model_type, folder);
  return family.from_folder(folder, config, compute);
}

std::shared_ptr<const Target> load_gguf(const fs::path& path, nn::Compute compute) {
  auto file = io::GgufFile::open(path);
  const Family& family =
      find_family(file->string("general.architecture"), &Family::gguf_architecture, path);
  return family.from_gguf(std::move(file), compute);
}

}  // namespace

TransformerConfig read_target_config(const fs::path& path) {
  if (path.extension() == ".gguf") {
    const auto file = io::GgufFile::open(path);
    const std::string architecture = file->string("general.architecture");
    return find_family(architecture, &Family::gguf_architecture, path).gguf_config(*file);
  }
  const ConfigReader config =
      fs::is_directory(path) ? ConfigReader(path) : ConfigReader(read_json(path), path);
  return find_family(config.string("model_type"), &Family::model_type, path).folder_config(config);
}

std::shared_ptr<const Target> load_target(const fs::path& path, const LoadOptions& options) {
  if (fs::is_directory(path)) {
    return naming(path.string(), [&] { return load_folder(path, options.compute); });
  }
  if (!fs::exists(path)) fail("target: {}: no such file or folder", path.string());
  if (path.extension() != ".gguf") {
    fail("target: {}: expected a folder with config.json or a .gguf file", path.string());
  }
  return naming(path.string(), [&] { return load_gguf(path, options.compute); });
}

}  // namespace dflash::target
