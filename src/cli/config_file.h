// --config FILE.toml and what is said about a command line that cannot be understood.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace dflash::cli {

/// Reads `key = value` lines (TOML without sections) and checks them line by line, so that an error
/// names file, line, key and verb.
class ConfigFile : public CLI::ConfigBase {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  /// "FILE:LINE: " when the option that `message` begins with got its value here, else "".
  std::string place_of(const std::string& message) const;

 private:
  void check_line(const std::string& line, int64_t number) const;
  std::string name() const;

  const CLI::App& app_;
  mutable std::map<std::string, int64_t> line_of_;  // by "--key"; from_config is const
};

/// One sentence, with the nearest option where one is misspelt.
std::string describe_error(const CLI::App& app, const ConfigFile& config,
                           const CLI::ParseError& error);

}  // namespace dflash::cli
