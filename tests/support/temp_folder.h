// A folder of its own for a test, gone afterwards; and whole-file helpers without fsync.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "support/paths.h"

namespace dflash::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dflash-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(stream.good()) << path;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// The path of a file of the source tree ("tests/golden/io/plain.safetensors").
inline std::filesystem::path source_path(std::string_view relative) {
  return tree::root() / relative;
}

/// The message of the Error that `run` throws; a failure of the test when it throws none.
template <typename ErrorType, typename Run>
std::string error_of(Run&& run) {
  try {
    run();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

/// The message of whatever `run` throws; empty when it throws nothing.
template <typename Run>
std::string error_text(Run&& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace dflash::testing
