#include "cli/options.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/profile.h"
#include "base/progress.h"
#include "base/suggest.h"
#include "cli/checks.h"

namespace dflash::cli {

VerbParser::VerbParser(const std::string& name, const std::string& summary)
    : app_(summary, "dflash-cpp " + name), config_(std::make_shared<ConfigFile>(app_)) {
  app_.option_defaults()->always_capture_default();
  app_.set_config("--config", "",
                  "TOML file with options of this verb (layers = 2); the command line wins");
  app_.config_formatter(config_);
  app_.allow_config_extras(CLI::config_extras_mode::error);
  app_.add_option("--threads", threads_, "CPU threads (0: all cores)")
      ->check(integer_from(0, 1024));
  app_.add_flag("--quiet", quiet_, "print warnings and results only");
}

std::optional<int> VerbParser::parse(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app_.exit(help);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "error: {}\n  hint: '{} --help' shows every option\n",
               describe_error(app_, *config_, e), app_.get_name());
    return 2;
  }
  if (threads_ > 0) omp_set_num_threads(threads_);
  if (quiet_) {
    set_log_level(2);
    Progress::set_enabled(false);
  }
  return std::nullopt;
}

/// The parser writes a list that keeps its default as one string, and an empty one as "": read
/// back, these would be other values.
std::string VerbParser::resolved() const {
  std::string out;
  std::istringstream lines(app_.config_to_str(/*default_also=*/true));
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find('='));
    const CLI::Option* option = app_.get_option_no_throw("--" + name);
    if (option != nullptr && option->get_items_expected_max() > 1 && option->count() == 0) {
      std::istringstream words(line.substr(name.size() + 1));
      std::vector<std::string> items;
      for (std::string word; words >> word;) {
        std::erase_if(word, [](char c) { return c == '"' || c == '[' || c == ']'; });
        if (!word.empty()) items.push_back('"' + word + '"');
      }
      if (items.empty()) continue;
      line = fmt::format("{}=[{}]", name, fmt::join(items, ","));
    }
    out += line + "\n";
  }
  return out;
}

void VerbParser::save_options(const std::filesystem::path& result) const {
  std::filesystem::path beside = result.string() + ".toml";
  if (std::filesystem::is_directory(result)) beside = result / "config.toml";
  write_text(beside, resolved());
}

std::vector<std::string> VerbParser::changed_options(const std::string& earlier) const {
  std::set<std::string> now;
  std::istringstream lines(resolved());
  for (std::string line; std::getline(lines, line);) now.insert(line);
  constexpr std::array kIgnored = {
      "json=", "quiet=", "threads=", "resume=", "nproc=", "rank-timeout=", "profile="};
  std::vector<std::string> changed;
  std::istringstream before(earlier);
  for (std::string line; std::getline(before, line);) {
    const bool ignored = std::any_of(kIgnored.begin(), kIgnored.end(),
                                     [&](const char* key) { return line.starts_with(key); });
    if (!ignored && !now.contains(line)) changed.push_back(line);
  }
  // Empty lists have no line: one that is given now.
  for (const std::string& line : now) {
    const std::string key = line.substr(0, line.find('=') + 1);
    if (!line.ends_with(']')) continue;
    if (!earlier.starts_with(key) && earlier.find("\n" + key) == std::string::npos) {
      changed.push_back(key + "[]");
    }
  }
  return changed;
}

void TargetOptions::add_path(CLI::App& app) {
  app.add_option("--target", path,
                 "Hugging Face folder or .gguf file (empty: the embedded SmolLM2-135M-Instruct)");
  app.add_option("--thinking", thinking,
                 "thinking mode of the chat template (auto: the template's own default)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
}

text::ChatOptions TargetOptions::chat_options() const {
  text::ChatOptions options;
  if (thinking != "auto") options.enable_thinking = thinking == "on";
  return options;
}

void TargetOptions::add(CLI::App& app) {
  add_path(app);
  app.add_option("--dtype", dtype,
                 "type to compute in: f32, bf16, or auto (bf16 where the CPU is fast at it)")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
}

std::filesystem::path TargetOptions::resolved_path() const {
  return path.empty() ? jobs::default_target() : std::filesystem::path(path);
}

jobs::Model TargetOptions::load() const {
  const profile::Range range("loading", "target");
  auto model = jobs::load_model(resolved_path(), nn::parse_compute(dtype), chat_options());
  log_info("target: {} ({})", jobs::describe(*model.target), resolved_path().filename().string());
  return model;
}

void SamplingOptions::add(CLI::App& app) {
  app.add_option("--temperature", sampling.temperature, "temperature of sampling (0: greedy)")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", sampling.top_k, "keep the k likeliest tokens (0: all)")
      ->check(integer_from(0));
  app.add_option("--top-p", sampling.top_p, "keep the likeliest tokens of this total probability")
      ->check(positive_share());
  app.add_option("--seed", sampling.seed,
                 "seed of sampling; a token depends on (seed, position) only");
  app.add_option("--max-new", max_new_tokens, "tokens to generate at most")
      ->check(integer_from(1, kMaxNewTokens));
}

std::filesystem::path task_file(const std::string& name) {
  if (name == "humaneval") return jobs::assets_folder() / "HumanEval.jsonl";
  if (name == "heldout") return jobs::prompts_folder() / "heldout.jsonl";
  if (!std::filesystem::exists(name) || std::filesystem::is_directory(name)) {
    fail("--tasks {}: expected heldout, humaneval or a file of prompts{}", name,
         did_you_mean(name, {"heldout", "humaneval"}));
  }
  return name;
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace dflash::cli
