// --profile FILE.json of the verbs that work long.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

namespace dflash::cli {

class ProfileOption {
 public:
  void add(CLI::App& app);

  /// A profile from here to the end of its life: then the trace is written and the table goes to
  /// stderr. Nothing without --profile. Rank n > 0 writes FILE.rankn.json and no table.
  class Session {
   public:
    Session(const std::string& path, int64_t rank);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    std::filesystem::path path_;
    bool leads_ = true;
  };
  /// Error when the file cannot be written.
  Session start(int64_t rank = 0) const { return Session(path_, rank); }

 private:
  std::string path_;
};

}  // namespace dflash::cli
