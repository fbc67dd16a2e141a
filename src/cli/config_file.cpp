#include "cli/config_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "base/suggest.h"

namespace dflash::cli {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Long names without dashes.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

std::string suggestion(const CLI::App& app, const std::string& name, const std::string& dashes) {
  std::vector<std::string> names;
  for (const std::string& known : option_names(app)) names.push_back(dashes + known);
  return did_you_mean(name, {names.begin(), names.end()});
}

/// Why the value of a line cannot be read; empty when it can.
std::string value_problem(const std::string& value) {
  if (value.empty()) return "has no value";
  if (value[0] != '"' && value[0] != '\'') return "";
  const size_t end = value.find(value[0], 1);
  if (end == std::string::npos) return "begins a text that has no closing quote";
  if (value.substr(0, end).find('#') == std::string::npos) return "";
  return "has a text with '#', which would begin a comment: give it on the command line";
}

std::string describe_extras(const CLI::App& app) {
  for (const std::string& argument : app.remaining()) {
    if (argument.size() < 2 || argument[0] != '-') continue;
    const std::string name = argument.substr(0, argument.find('='));
    return fmt::format("no option '{}'{}", name, suggestion(app, name, "--"));
  }
  const auto rest = app.remaining();
  return fmt::format("unexpected argument '{}'", rest.empty() ? "" : rest.front());
}

}  // namespace

std::string ConfigFile::name() const {
  const auto given = app_.get_config_ptr()->results();
  return given.empty() ? "the config file" : given.back();
}

void ConfigFile::check_line(const std::string& line, int64_t number) const {
  const auto refuse = [&](const std::string& why) {
    throw CLI::ConfigError(fmt::format("{}:{}: {}", name(), number, why));
  };
  const size_t equals = line.find('=');
  if (line[0] == '[') refuse("expected key = value, got a section; the file is TOML of one verb");
  if (equals == std::string::npos) refuse("expected key = value, got '" + line + "'");
  std::string key = trimmed(line.substr(0, equals));
  if (key.size() > 1 && key.front() == '"' && key.back() == '"')
    key = key.substr(1, key.size() - 2);
  const CLI::Option* option = app_.get_option_no_throw("--" + key);
  if (option == nullptr) option = app_.get_option_no_throw(key);  // a positional one
  if (option == nullptr || !option->get_configurable()) {
    refuse(fmt::format("'{}' is no option of '{}'{}", key, app_.get_name(),
                       suggestion(app_, key, "")));
  }
  const std::string problem = value_problem(trimmed(line.substr(equals + 1)));
  if (!problem.empty()) refuse(fmt::format("'{}' {}", key, problem));
  if (option->empty()) line_of_[option->get_name()] = number;  // else the command line wins
}

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  std::ostringstream all;
  all << input.rdbuf();
  std::istringstream lines(all.str());
  int64_t number = 0;
  for (std::string raw; std::getline(lines, raw);) {
    const std::string line = trimmed(raw);
    ++number;
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    check_line(line, number);
    const size_t open = line.find('[');
    const bool goes_on = open != std::string::npos &&
                         trimmed(line.substr(line.find('=') + 1))[0] == '[' &&
                         line.find(']', open) == std::string::npos;
    while (goes_on && std::getline(lines, raw)) {
      ++number;
      if (raw.find(']') != std::string::npos) break;
    }
  }
  std::istringstream again(all.str());
  return CLI::ConfigBase::from_config(again);
}

std::string ConfigFile::place_of(const std::string& message) const {
  const auto found = line_of_.find(message.substr(0, message.find(':')));
  return found == line_of_.end() ? "" : fmt::format("{}:{}: ", name(), found->second);
}

std::string describe_error(const CLI::App& app, const ConfigFile& config,
                           const CLI::ParseError& error) {
  const std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return describe_extras(app);
  if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
    const auto given = app.get_config_ptr()->results();
    const std::string path = given.empty() ? what : given.back();
    const bool folder = std::filesystem::is_directory(path);
    return fmt::format("--config {}: expected a TOML file, got {}", path,
                       folder ? "a folder" : "nothing that can be read");
  }
  return config.place_of(what) + what;
}

}  // namespace dflash::cli
