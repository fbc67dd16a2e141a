// Files are whole or absent, whatever goes wrong while they are written.
#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempFolder;

/// While alive, no file of this process may grow beyond `bytes`: a disk that fills up.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

TEST(Files, WriteCreatesFoldersAndReplaces) {
  const TempFolder folder;
  const fs::path path = folder / "a/b/file.txt";
  write_text(path, "one");
  EXPECT_EQ(read_text(path), "one");
  write_text(path, "");
  EXPECT_EQ(read_text(path), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
}

TEST(Files, DiskFullKeepsTheOldFileAndLeavesNoRest) {
  const TempFolder folder;
  const fs::path path = folder / "file.bin";
  write_text(path, "old");
  {
    const FileSizeLimit limit(4096);
    const std::string big(100'000, 'x');
    EXPECT_THAT(error_of<Error>([&] { write_text(path, big); }), HasSubstr("file.bin"));
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, FullDeviceIsAnError) {
  const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (fd < 0) GTEST_SKIP() << "no /dev/full";
  EXPECT_THAT(error_of<Error>([&] { write_all(fd, "abc", 3, "some/path"); }),
              HasSubstr("cannot write some/path: No space left"));
  ::close(fd);
}

TEST(Files, ThrowingWriterLeavesNothing) {
  const TempFolder folder;
  EXPECT_THROW(write_atomically(folder / "x",
                                [&](int fd) {
                                  write_all(fd, "half", 4, folder / "x");
                                  throw std::runtime_error("stop");
                                }),
               std::runtime_error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Files, ImpossiblePlacesAreErrors) {
  const TempFolder folder;
  write_text(folder / "file", "x");
  EXPECT_THROW(write_text(folder / "file/below", "x"), Error);
  EXPECT_THROW(make_folder(folder / "file"), Error);
  make_folder(folder / "dir/below");
  EXPECT_THROW(write_text(folder / "dir", "x"), Error);  // a folder stands there
  EXPECT_TRUE(fs::is_directory(folder / "dir/below"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
}

TEST(Files, ReadTextChecksPresenceKindAndSize) {
  const TempFolder folder;
  write_text(folder / "f", "12345");
  EXPECT_EQ(read_text(folder / "f", 5), "12345");
  EXPECT_THAT(error_of<Error>([&] { read_text(folder / "f", 4); }), HasSubstr("at most 4"));
  EXPECT_THROW(read_text(folder / "absent"), Error);
  EXPECT_THROW(read_text(folder.path()), Error);
}

TEST(Files, JsonRoundTripAndErrors) {
  const TempFolder folder;
  const Json value{{"a", {1, 2.5, nullptr}}, {"b", "zwölf"}};
  write_json(folder / "v.json", value);
  EXPECT_EQ(read_json(folder / "v.json"), value);
  write_text(folder / "bad.json", "{\"a\": }");
  EXPECT_THAT(error_of<Error>([&] { read_json(folder / "bad.json"); }), HasSubstr("bad.json"));
  EXPECT_THROW(write_json(folder / "w.json", Json{{"a", "\xff"}}), Error);
  EXPECT_FALSE(fs::exists(folder / "w.json"));
}

TEST(Files, FreeSpaceIsRequired) {
  const TempFolder folder;
  require_free_space(folder.path(), 1);
  EXPECT_THAT(error_of<Error>([&] { require_free_space(folder.path(), 1ULL << 62); }),
              HasSubstr("disk nearly full"));
}

}  // namespace
}  // namespace dflash
