// One writer a place, one kind of result a folder.
#include "base/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

using testing::TempFolder;

TEST(OutputLock, ASecondWriterIsRefusedAndToldWhoTheFirstIs) {
  TempFolder folder;
  {
    const auto first = lock_folder(folder / "out");
    const std::string message =
        testing::error_of<Error>([&] { const auto second = lock_folder(folder / "out"); });
    EXPECT_NE(message.find(std::to_string(::getpid())), std::string::npos) << message;
    const auto other = lock_file(folder / "out" / "a.jsonl");  // another place
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out")) << "a lock leaves nothing behind";
  const auto again = lock_folder(folder / "out");
}

TEST(OutputLock, AFileThatAKilledProcessLeftLocksNothing) {
  TempFolder folder;
  testing::write_file(folder / "a.jsonl.lock", "1");
  const auto lock = lock_file(folder / "a.jsonl");
  EXPECT_EQ(testing::read_file(folder / "a.jsonl.lock"), std::to_string(::getpid()));
}

TEST(OutputLock, IsSeenByThoseWhoOnlyLook) {
  TempFolder folder;
  EXPECT_FALSE(is_locked(folder.path()));
  EXPECT_FALSE(is_locked(folder / "absent"));
  {
    const auto lock = lock_folder(folder.path());
    EXPECT_TRUE(is_locked(folder.path()));
    EXPECT_TRUE(is_locked(folder.path())) << "looking takes nothing";
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "looking leaves nothing";
  testing::write_file(folder / ".lock", "1");
  EXPECT_FALSE(is_locked(folder.path())) << "a killed process holds nothing";
}

TEST(ClaimFolder, HoldsOneKindOfResult) {
  TempFolder folder;
  claim_folder(folder / "absent", "dataset.json");
  testing::write_file(folder / "dataset.json", "{}");
  claim_folder(folder.path(), "dataset.json");
  const std::string message =
      testing::error_of<Error>([&] { claim_folder(folder.path(), "features.json"); });
  EXPECT_NE(message.find("a dataset"), std::string::npos) << message;
}

}  // namespace
}  // namespace dflash
