#include "runs/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string_view>

namespace dflash::runs {
namespace {

constexpr std::array<std::string_view, 5> kOutputOptions = {"out", "quiet", "json", "resume",
                                                            "config"};
// Said again by drafter.dflash_cpp.layers and drafter.num_hidden_layers.
constexpr std::array<std::string_view, 2> kRepeated = {"drafter.layer_types",
                                                       "drafter.max_window_layers"};

void flatten(const Json& value, const std::string& name, std::map<std::string, Json>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) {
      flatten(inner, name.empty() ? key : name + "." + key, out);
    }
  } else if (value.is_array() && !value.empty() && value[0].is_object()) {
    for (size_t i = 0; i < value.size(); ++i)
      flatten(value[i], fmt::format("{}[{}]", name, i), out);
  } else {
    out.emplace(name, value);
  }
}

/// `name=value` lines as VerbParser::resolved() writes them.
void flatten_command_line(const std::string& text, std::map<std::string, Json>& out) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    if (std::find(kOutputOptions.begin(), kOutputOptions.end(), name) != kOutputOptions.end()) {
      continue;
    }
    std::string value = line.substr(equals + 1);
    const bool quoted = value.size() >= 2 && value.front() == value.back() &&
                        (value.front() == '"' || value.front() == '\'');
    const Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    out.emplace("--" + name, quoted                  ? Json(value.substr(1, value.size() - 2))
                             : parsed.is_discarded() ? Json(value)
                                                     : parsed);
  }
}

/// "options.optimizer.muon_lr" and "--muon-lr" -> "muon_lr"; empty inside of lists, where names
/// repeat with another meaning.
std::string last_name(const std::string& name) {
  if (name.find('[') != std::string::npos) return "";
  const size_t dot = name.starts_with("--") ? 1 : name.rfind('.');
  std::string last = name.substr(dot == std::string::npos ? 0 : dot + 1);
  std::replace(last.begin(), last.end(), '-', '_');
  return last;
}

}  // namespace

Json Setting::to_json() const {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(value.value_or(Json()));
  return {{"name", name}, {"values", list}};
}

std::map<std::string, Json> flat_settings(const TrainingRun& run) {
  std::map<std::string, Json> out;
  Json config = run.record.value("config", Json::object());
  if (config.is_object() && config.contains("command_line")) {
    if (config["command_line"].is_string()) {
      flatten_command_line(config["command_line"].get<std::string>(), out);
    }
    config.erase("command_line");
  }
  if (config.is_object() && config.contains("target")) config["target"] = run.target();
  flatten(config, "", out);
  flatten(run.record.value("header", Json::object()), "", out);
  if (run.dataset.is_object() && run.dataset.contains("fingerprint")) {
    out.emplace("dataset.fingerprint", run.dataset["fingerprint"]);
  }
  for (const std::string_view name : kRepeated) out.erase(std::string(name));
  return out;
}

SettingsComparison compare_settings(const std::vector<TrainingRun>& runs) {
  std::vector<std::map<std::string, Json>> all;
  std::set<std::string> names;
  for (const TrainingRun& run : runs) {
    all.push_back(flat_settings(run));
    for (const auto& [name, value] : all.back()) names.insert(name);
  }
  SettingsComparison out;
  const auto is_said = [&](const Setting& setting) {
    const std::string last = last_name(setting.name);
    return !last.empty() &&
           std::any_of(out.differing.begin(), out.differing.end(), [&](const Setting& earlier) {
             return last_name(earlier.name) == last && earlier.values == setting.values;
           });
  };
  for (const std::string& name : names) {
    Setting setting{name, {}};
    for (const auto& settings : all) {
      const auto it = settings.find(name);
      setting.values.push_back(it == settings.end() ? std::nullopt : std::optional(it->second));
    }
    const bool same = std::all_of(setting.values.begin(), setting.values.end(),
                                  [&](const auto& value) { return value == setting.values[0]; });
    if (same) {
      ++out.num_same;
    } else if (!is_said(setting)) {
      out.differing.push_back(std::move(setting));
    }
  }
  return out;
}

Caveats caveats(const std::vector<Setting>& differing, size_t a, size_t b) {
  // A fingerprint that one run does not have says nothing.
  const auto other = [&](std::string_view name) {
    return std::any_of(differing.begin(), differing.end(), [&](const Setting& setting) {
      return setting.name == name && setting.values[a] && setting.values[b] &&
             setting.differs(a, b);
    });
  };
  const auto differs = [&](std::initializer_list<std::string_view> beginnings) {
    return std::any_of(differing.begin(), differing.end(), [&](const Setting& setting) {
      return setting.differs(a, b) &&
             std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view beginning) {
               return setting.name.starts_with(beginning);
             });
    });
  };
  Caveats out;
  if (other("target_fingerprint")) {
    out.loss_comparable = false;
    out.texts.push_back("other targets: neither losses nor tau can be compared");
  } else if (differs({"options.loss", "loss_rule", "--loss", "--labels", "--weighting", "--gamma",
                      "draft_vocabulary", "--draft-vocab", "--block-size", "drafter.block_size"})) {
    out.loss_comparable = false;
    out.texts.push_back(
        "the losses are defined differently and cannot be compared; expected acceptance can");
  }
  if (other("dataset.fingerprint") || other("documents")) {
    out.texts.push_back("other training data: curves are of other texts, tau can be compared");
  }
  if (differs({"--validate", "--validate-limit", "--validate-max-new"})) {
    out.texts.push_back("validations differ (--validate...): tau is of other prompts or lengths");
  }
  return out;
}

}  // namespace dflash::runs
