#include "jobs/model.h"

#include <cstdlib>

#include "base/error.h"
#include "base/progress.h"
#include "io/gguf.h"
#include "target/load.h"

namespace dflash::jobs {
namespace fs = std::filesystem;

std::shared_ptr<const text::Tokenizer> load_tokenizer(const fs::path& path) {
  if (!fs::exists(path)) {
    fail("no such target: {}\n  hint: give a Hugging Face folder or a .gguf file", path.string());
  }
  if (fs::is_directory(path)) return text::Tokenizer::from_folder(path);
  return text::Tokenizer::from_gguf(*io::GgufFile::open(path));
}

text::ChatTemplate load_chat(const text::Tokenizer& tokenizer, const text::ChatOptions& options) {
  try {
    return text::ChatTemplate::for_tokenizer(tokenizer, options);
  } catch (const Error& e) {
    if (options.enable_thinking.has_value()) throw;  // asked for, so a template is needed
    return text::ChatTemplate::refusing(e.what());
  }
}

Model load_model(const fs::path& path, nn::Compute compute, const text::ChatOptions& options) {
  auto tokenizer = load_tokenizer(path);
  auto chat = load_chat(*tokenizer, options);
  auto target = target::load_target(path, {.compute = compute});
  if (tokenizer->size() > target->config().vocab_size) {
    fail("vocabulary does not fit: {}: the tokenizer knows {} ids, the embedding has {} rows",
         path.string(), tokenizer->size(), target->config().vocab_size);
  }
  return {std::move(target), std::move(tokenizer), std::move(chat)};
}

namespace {

constexpr const char* kDefaultTarget = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The variable's value, else `name` in the current folder, else in the tree of build/<preset>/.
fs::path find_folder(const char* variable, const char* name) {
  if (const char* given = std::getenv(variable)) return given;
  if (fs::is_directory(name)) return name;
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  const fs::path tree = program.parent_path().parent_path().parent_path() / name;
  return fs::is_directory(tree, code) ? tree : fs::path(name);
}

}  // namespace

fs::path assets_folder() {
  return find_folder("DFLASH_ASSETS", "assets");
}

fs::path prompts_folder() {
  return find_folder("DFLASH_PROMPTS", "prompts");
}

fs::path default_target() {
  const fs::path path = assets_folder() / kDefaultTarget;
  if (!fs::exists(path)) {
    fail(
        "the default target is not here: {}\n  hint: run 'make setup' in the project's folder, or "
        "give --target",
        path.string());
  }
  return path;
}

std::optional<fs::path> bundled_drafter() {
  const char* given = std::getenv("DFLASH_DRAFTER");
  if (given != nullptr && *given == '\0') return std::nullopt;
  const fs::path folder = find_folder("DFLASH_DRAFTER", "recipes/smollm2/drafter");
  if (fs::exists(folder / "config.json") && fs::exists(folder / "model.safetensors")) return folder;
  if (given == nullptr) return std::nullopt;
  fail("DFLASH_DRAFTER: {}: expected a folder with config.json and model.safetensors",
       folder.string());
}

std::optional<fs::path> bundled_drafter_for(const fs::path& target) {
  std::error_code none_there;
  const fs::path trained_for = assets_folder() / kDefaultTarget;
  if (!target.empty() && !fs::equivalent(target, trained_for, none_there)) return std::nullopt;
  return bundled_drafter();
}

std::string describe(const target::Target& target) {
  const auto& config = target.config();
  return fmt::format("{}, {} blocks, hidden {}, vocabulary {}, {}, kernels {}, {}", config.family,
                     config.num_layers, config.hidden_size, config.vocab_size, target.storage(),
                     nn::kernel_name(target.compute()), counted(nn::num_threads(), "threads"));
}

}  // namespace dflash::jobs
