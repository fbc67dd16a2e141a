// What the tests of this module share: goldens, temporary folders, the default target.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "support/paths.h"
#include "support/temp_folder.h"
#include "text/tokenizer.h"

namespace dflash::text {

inline std::filesystem::path golden(const std::string& name) {
  return tree::root() / "tests/golden/text" / name;
}

inline std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return out;
}

/// The hard corpus: whatever bytes a user may bring.
inline std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const Json& hex : read_json(golden("corpus.json"))) {
    texts.push_back(from_hex(hex.get<std::string>()));
  }
  return texts;
}

/// A folder for a tokenizer's files.
class TempFolder : public testing::TempFolder {
 public:
  TempFolder& put(const std::string& name, const Json& value) {
    write_json(path() / name, value);
    return *this;
  }
  std::shared_ptr<const Tokenizer> load() const { return Tokenizer::from_folder(path()); }
};

/// SmolLM2's tokenizer from its GGUF file; null where the file is not at hand.
inline std::shared_ptr<const Tokenizer> smollm2() {
  const char* assets = std::getenv("DFLASH_ASSETS");
  const std::filesystem::path folder =
      assets != nullptr ? std::filesystem::path(assets) : tree::root() / "assets";
  const auto file = folder / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(file)) return nullptr;
  return Tokenizer::from_gguf(*io::GgufFile::open(file));
}

#define SKIP_WITHOUT_SMOLLM2(tokenizer) \
  if (tokenizer == nullptr) GTEST_SKIP() << "SmolLM2's GGUF file is not in assets (DFLASH_ASSETS)"

/// The message of the Error that `action` throws; fails the test when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  return testing::error_of<Error>(action);
}

}  // namespace dflash::text
