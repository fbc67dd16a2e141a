#include "target/load.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "io/gguf.h"
#include "target/config_reader.h"
#include "target/llama.h"

namespace dflash::target {
namespace {

namespace fs = std::filesystem;

/// A family is one row here and its own files.
struct Family {
  std::string model_type;         // config.json
  std::string gguf_architecture;  // general.architecture
  std::shared_ptr<const Target> (*from_folder)(const fs::path&, const ConfigReader&, nn::Compute);
  std::shared_ptr<const Target> (*from_gguf)(std::shared_ptr<const io::GgufFile>, nn::Compute);
};

const std::vector<Family>& families() {
  static const std::vector<Family> rows = {{"llama", "llama", load_llama_folder, load_llama_gguf}};
  return rows;
}

const Family& find_family(const std::string& name, std::string Family::*key, const fs::path& path) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.*key == name) return family;
    known.push_back(family.*key);
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

std::shared_ptr<const Target> load_target(const fs::path& path, const LoadOptions& options) {
  if (fs::is_directory(path)) return load_folder(path, options.compute);
  if (!fs::exists(path)) fail("target: {}: no such file or folder", path.string());
  if (path.extension() != ".gguf") {
    fail("target: {}: expected a folder with config.json or a .gguf file", path.string());
  }
  return load_gguf(path, options.compute);
}

}  // namespace dflash::target
