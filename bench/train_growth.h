// How a step grows with the context and with the anchors: train_bench run anew for every point, so
// that each has its own peak; exponents are slopes of least squares over logarithms.
#pragma once

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace dflash {

using Settings = std::map<std::string, std::string>;

/// Peak of this process's memory so far, or since reset_peak_rss_mb.
inline double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024.0;
  }
  fail("peak memory: /proc/self/status: expected VmHWM, got none");
}

/// What the process holds now, from which on peaks count.
inline double reset_peak_rss_mb() {
  std::ofstream("/proc/self/clear_refs") << "5\n";
  return peak_rss_mb();
}

/// This program in a process of its own.
inline Json run_self(const Settings& settings) {
  std::string command = "/proc/self/exe";
  command = std::filesystem::read_symlink(command).string();
  for (const auto& [name, value] : settings) command += fmt::format(" {}={}", name, value);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  for (int c = 0; pipe && (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  if (text.empty()) fail("growth: {}: it printed nothing", command);
  return Json::parse(text);
}

/// Slope of log y over log x.
inline double exponent(const std::vector<double>& x, const std::vector<double>& y) {
  const auto count = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, above = 0, below = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += std::log(x[i]) / count, mean_y += std::log(y[i]) / count;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = std::log(x[i]) - mean_x;
    above += dx * (std::log(y[i]) - mean_y), below += dx * dx;
  }
  return above / below;
}

/// Seconds and memory of a step over `values` of one setting.
inline Json growth_in(Settings settings, const std::string& name,
                      const std::vector<int64_t>& values) {
  Json points = Json::array();
  std::vector<double> x, seconds, memory;
  for (const int64_t value : values) {
    settings[name] = std::to_string(value);
    const Json run = run_self(settings);
    x.push_back(static_cast<double>(value));
    seconds.push_back(run["least_seconds"]);
    memory.push_back(run["step_memory_mb"]);
    points.push_back({{name, value}, {"seconds", seconds.back()}, {"memory_mb", memory.back()}});
  }
  return {{"points", points},
          {"seconds_exponent", exponent(x, seconds)},
          {"memory_exponent", exponent(x, memory)}};
}

/// Context 512 to 8192 under the given anchors; anchors 64 to 2048 over 4096 tokens.
inline int print_growth(Settings settings) {
  settings["growth"] = "0";
  Settings many = settings;
  many["tokens"] = "4096";
  Json result = {{"program", "dflash.cpp"},
                 {"settings", settings},
                 {"context", growth_in(settings, "tokens", {512, 1024, 2048, 4096, 8192})},
                 {"anchors", growth_in(many, "anchors", {64, 128, 256, 512, 1024, 2048})}};
  double most = 0;
  for (const char* axis : {"context", "anchors"}) {
    for (const char* what : {"seconds_exponent", "memory_exponent"}) {
      most = std::max(most, result[axis][what].get<double>());
    }
  }
  result["growth_exponent_max"] = most;
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace dflash
