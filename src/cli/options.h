// What all verbs share on the command line: the parser with --config, the target, the dtype, where
// output goes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/json.h"
#include "decode/sampler.h"
#include "jobs/model.h"

namespace dflash::cli {

/// A verb's parser: `--config FILE.toml` sets any option, the command line wins, unknown keys are
/// errors; `--threads`, `--quiet`.
class VerbParser {
 public:
  VerbParser(const std::string& name, const std::string& summary);
  /// nullopt: go on. Otherwise the exit code (help was printed, or the error).
  std::optional<int> parse(int argc, char** argv);
  CLI::App& app() { return app_; }
  /// Every option with its value, as TOML: written beside the result.
  std::string resolved() const { return app_.config_to_str(/*default_also=*/true); }

 private:
  CLI::App app_;
  int threads_ = 0;
  bool quiet_ = false;
};

/// --target and --dtype.
struct TargetOptions {
  std::string path;            // empty: the embedded default
  std::string dtype = "auto";  // auto, f32, bf16

  void add(CLI::App& app);
  jobs::Model load() const;
  std::filesystem::path resolved_path() const;
};

/// --temperature, --top-k, --top-p, --seed, --max-new.
struct SamplingOptions {
  decode::Sampling sampling;
  int64_t max_new_tokens = 256;

  void add(CLI::App& app);
};

/// Result on stdout: JSON when asked for, nothing otherwise.
void print_json(const Json& json);

}  // namespace dflash::cli
