// The places results go to: one process writes to a place at a time, and a folder holds one kind of
// result.
#pragma once

#include <filesystem>
#include <string_view>

namespace dflash {

/// Held while a place is written to; a lock file with the process's number marks it. A killed
/// process holds nothing, whatever file it left.
class OutputLock {
 public:
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  friend OutputLock lock_folder(const std::filesystem::path& folder);
  friend OutputLock lock_file(const std::filesystem::path& file);
  OutputLock(std::filesystem::path lock, const std::filesystem::path& output);

  std::filesystem::path path_;
  int fd_ = -1;
};

/// Creates the folder. Error naming the process that writes there now.
[[nodiscard]] OutputLock lock_folder(const std::filesystem::path& folder);
/// The same for a result that is one file.
[[nodiscard]] OutputLock lock_file(const std::filesystem::path& file);
/// True while a process holds the lock of `folder`. Writes nothing; a folder that cannot be asked
/// is not locked.
bool is_locked(const std::filesystem::path& folder);

/// Error when the folder holds another kind of result than the one that the file `index` is the
/// index of ("dataset.json", "features.json", "run.json", "progress.json"): parts of one would
/// overwrite the other's.
void claim_folder(const std::filesystem::path& folder, std::string_view index);

}  // namespace dflash
