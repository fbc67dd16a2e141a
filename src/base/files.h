// Files that are whole or absent: written under a temporary name, synced, renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace dflash {

/// Creates `path` by calling `write` on an open descriptor of a temporary file in the same folder,
/// then fsync and rename. On any error (disk full included) the temporary file is removed, what
/// stood at `path` stays, and Error is thrown.
void write_atomically(const std::filesystem::path& path, const std::function<void(int fd)>& write);

/// Writes all bytes to fd or throws Error naming `path`.
void write_all(int fd, const void* bytes, uint64_t size, const std::filesystem::path& path);

void write_text(const std::filesystem::path& path, std::string_view text);
void write_json(const std::filesystem::path& path, const Json& value);

/// Whole file as text; Error when missing, unreadable or larger than `max_bytes`.
std::string read_text(const std::filesystem::path& path, uint64_t max_bytes = 1ULL << 31);

/// Parsed JSON; Error names the file and what the parser said.
Json read_json(const std::filesystem::path& path);

/// Creates the folder and its parents; Error when impossible.
void make_folder(const std::filesystem::path& path);

/// fsync of a folder, so that renames in it survive a power cut.
void sync_folder(const std::filesystem::path& path);

/// Throws Error when the disk that holds `folder` has fewer than `bytes` free.
void require_free_space(const std::filesystem::path& folder, uint64_t bytes);

}  // namespace dflash
