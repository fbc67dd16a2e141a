// Run folders written by hand: steps as a formula, settings as JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "support/temp_folder.h"

namespace dflash::testing {

struct MadeRun {
  int64_t steps = 100, total_steps = 100, anchors = 256;
  std::function<double(int64_t step)> loss = [](int64_t) { return 1.0; };
  std::function<double(int64_t step)> acceptance = [](int64_t) { return 1.5; };
  Json config = {{"target", "llama, 2 blocks, kernels avx2, 2 threads"},
                 {"target_fingerprint", "f00"}};
  Json options = {{"optimizer", {{"lr", 0.0006}, {"kind", "muon"}}},
                  {"loss", {{"gamma", 4.0}, {"terms", {{{"loss", "ce"}, {"weight", 1.0}}}}}}};
  std::string more_lines = "";  // after the steps

  std::string metrics() const {
    std::string text;
    for (int64_t step = 1; step <= steps; ++step) {
      const Json line = {{"step", step},
                         {"anchors", anchors},
                         {"loss", loss(step)},
                         {"accuracy", 0.25},
                         {"expected_acceptance", acceptance(step)},
                         {"grad_norm", 2.0},
                         {"rate_factor", 1.0},
                         {"applied", true},
                         {"seconds", 0.5},
                         {"slot_accuracy", {0.0, 0.5, 0.25}}};
      text += line.dump() + "\n";
    }
    return text + more_lines;
  }
  Json record() const {
    return {{"format", "dflash-run"},
            {"version", 1},
            {"config", config},
            {"header", {{"options", options}, {"total_steps", total_steps}, {"documents", 10}}}};
  }
  std::filesystem::path write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    write_file(folder / "run.json", record().dump());
    write_file(folder / "metrics.jsonl", metrics());
    return folder;
  }
};

/// The same numbers on every machine, in [-1, 1).
inline double noise(int64_t step, uint64_t seed) {
  uint64_t x = static_cast<uint64_t>(step) * 0x9E3779B97F4A7C15ULL + seed * 0xD1B54A32D192ED03ULL;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 32;
  return static_cast<double>(x >> 11) * 0x1.0p-52 - 1.0;
}

}  // namespace dflash::testing
