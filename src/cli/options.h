// What all verbs share on the command line: the parser with --config, the target, the dtype, where
// output goes.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "cli/config_file.h"
#include "decode/sampler.h"
#include "jobs/model.h"

namespace dflash::cli {

/// A verb's parser: `--config FILE.toml` sets any option, the command line wins, unknown keys are
/// errors; `--threads`, `--quiet`. Numbers are bounded by cli/checks.h.
class VerbParser {
 public:
  VerbParser(const std::string& name, const std::string& summary);
  /// nullopt: go on. Otherwise the exit code (help was printed, or the error).
  std::optional<int> parse(int argc, char** argv);
  CLI::App& app() { return app_; }
  /// Every option with its value, as TOML: written beside the result.
  std::string resolved() const;
  /// Writes resolved() beside a result: config.toml in a folder, FILE.toml beside a file. It can be
  /// given as --config.
  void save_options(const std::filesystem::path& result) const;
  /// Lines of `earlier`, an earlier resolved(), that say something else now; what only concerns
  /// output and machine (--json, --quiet, --threads, --nproc, --rank-timeout, --resume) is not
  /// compared.
  std::vector<std::string> changed_options(const std::string& earlier) const;

 private:
  CLI::App app_;
  std::shared_ptr<ConfigFile> config_;
  int threads_ = 0;
  bool quiet_ = false;
};

/// --target and --dtype.
struct TargetOptions {
  std::string path;               // empty: the embedded default
  std::string dtype = "auto";     // auto, f32, bf16
  std::string thinking = "auto";  // auto (the template's own default), on, off

  void add(CLI::App& app);
  /// --target and --thinking, for verbs that need its tokenizer only.
  void add_path(CLI::App& app);
  text::ChatOptions chat_options() const;
  jobs::Model load() const;
  std::filesystem::path resolved_path() const;
};

/// --temperature, --top-k, --top-p, --seed, --max-new.
struct SamplingOptions {
  decode::Sampling sampling;
  int64_t max_new_tokens = 256;

  void add(CLI::App& app);
};

/// "humaneval" and "heldout" are the bundled task sets; anything else is a file. Error: neither.
std::filesystem::path task_file(const std::string& name);

/// Result on stdout: JSON when asked for, nothing otherwise.
void print_json(const Json& json);

/// How a job ends: its options beside the result, a line for people, a report for programs.
template <typename Report>
void finish_job(const VerbParser& parser, const std::filesystem::path& out, const Report& report,
                bool json) {
  parser.save_options(out);
  log_info("{}: {}", out.string(), report.text());
  if (json) print_json(report.to_json());
}

}  // namespace dflash::cli
