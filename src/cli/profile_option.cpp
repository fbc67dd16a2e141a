#include "cli/profile_option.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/log.h"
#include "base/profile.h"

namespace dflash::cli {

void ProfileOption::add(CLI::App& app) {
  app.add_option("--profile", path_,
                 "write where the time went to this file, for chrome://tracing, and show a table");
}

ProfileOption::Session::Session(const std::string& path, int64_t rank)
    : path_(path), leads_(rank == 0) {
  if (path_.empty()) return;
  if (!leads_) path_.replace_extension(fmt::format("rank{}.json", rank));
  write_text(path_, "");  // a folder that is missing is said before the work, not after it
  profile::start();
}

ProfileOption::Session::~Session() {
  if (path_.empty()) return;
  const profile::Profile profile = profile::stop();
  try {
    if (leads_) fmt::print(stderr, "{}", profile::text(profile));
    profile::write_trace(profile, path_);
  } catch (const std::exception& error) {
    log_warning("profile: {}: not written: {}", path_.string(), error.what());
  }
}

}  // namespace dflash::cli
