#include "target/layer_types.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace dflash::target {

std::vector<std::string> read_layer_types(const ConfigReader& config, int64_t layers,
                                          const std::vector<std::string>& known) {
  const std::vector<std::string> listed = config.strings("layer_types");
  if (listed.empty()) return listed;
  if (static_cast<int64_t>(listed.size()) != layers) {
    fail("model config: {}: layer_types: expected {} entries, one a layer, got {}", config.where(),
         layers, listed.size());
  }
  for (const std::string& word : listed) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      fail("model config: {}: layer_types: unknown kind {}\n  hint: known are {}", config.where(),
           word, fmt::join(known, ", "));
    }
  }
  return listed;
}

}  // namespace dflash::target
