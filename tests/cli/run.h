// The built program as a user calls it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "support/paths.h"
#include "support/temp_folder.h"

namespace dflash {

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// Runs `dflash-cpp arguments` in a shell; stderr goes through a file. `setting` is what env makes
/// of the environment; without more the tests see no bundled drafter, whether the tree has one or
/// not.
inline Outcome run(const std::string& arguments, const std::string& setting = "DFLASH_DRAFTER=") {
  testing::TempFolder folder;
  const std::string err = (folder / "err").string();
  const std::string command =
      "env " + setting + " " + tree::program().string() + " " + arguments + " 2> " + err;
  Outcome outcome;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.out.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.err = testing::read_file(err);
  return outcome;
}

inline std::filesystem::path default_target_path() {
  return testing::source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf");
}

inline bool has_default_target() {
  return std::filesystem::exists(default_target_path());
}

inline std::string default_target() {
  return " --target " + default_target_path().string();
}

}  // namespace dflash
