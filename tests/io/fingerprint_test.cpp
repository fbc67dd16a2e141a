// SHA-256 against the standard's vectors; fingerprints tell apart what differs.
#include "io/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "io/mapped_file.h"
#include "support/temp_folder.h"

namespace dflash::io {
namespace {

std::string sha(std::string_view text, size_t piece = 1 << 20) {
  Sha256 hash;
  for (size_t i = 0; i < text.size(); i += piece) {
    hash.update(std::as_bytes(std::span(text.substr(i, piece))));
  }
  return hash.hex();
}

TEST(Sha256, VectorsOfTheStandard) {
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1'000'000, 'a');
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{1000}}) {
    EXPECT_EQ(sha(million, piece),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Fingerprint, PartsDoNotRunTogether) {
  const std::set<std::string> all{Fingerprint("k").add("ab").add("c").hex(),
                                  Fingerprint("k").add("a").add("bc").hex(),
                                  Fingerprint("k").add("abc").hex(),
                                  Fingerprint("kabc").hex(),
                                  Fingerprint("j").add("abc").hex(),
                                  Fingerprint("k").add(std::vector<std::string>{"ab", "c"}).hex(),
                                  Fingerprint("k").add(std::vector<std::string>{"abc"}).hex(),
                                  Fingerprint("k").add(7).hex()};
  EXPECT_EQ(all.size(), 8U);
  EXPECT_EQ(Fingerprint("k").add("x").hex(), Fingerprint("k").add("x").hex());
  EXPECT_EQ(Fingerprint("k").hex().size(), 32U);
}

TEST(Fingerprint, IsStable) {  // stored in files: must never change
  const std::vector<int64_t> shape{2, 3};
  const std::vector<float> data{0, 1, 2, 3, 4, 5};
  Fingerprint print("target");
  print.add("llama").add(30).add_tensor("w", "F32", shape, std::as_bytes(std::span(data)));
  EXPECT_EQ(print.hex(), "cd7df996b7b433c344befac7156549e2");
}

TEST(Fingerprint, SamplesSeeBothEndsAndTheSize) {
  std::vector<std::byte> bytes(1'000'003);
  const auto print = [&] { return Fingerprint("t").add_sampled(bytes).hex(); };
  std::set<std::string> all{print()};
  for (const size_t touched : {size_t{0}, bytes.size() - 1, size_t{66666}}) {
    bytes[touched] = std::byte{1};
    EXPECT_TRUE(all.insert(print()).second) << touched;
  }
  bytes.push_back(std::byte{0});
  EXPECT_TRUE(all.insert(print()).second);
  std::vector<std::byte> small(16 * 4096);
  const std::string before = Fingerprint("t").add_sampled(small).hex();
  small[12345] = std::byte{1};
  EXPECT_NE(Fingerprint("t").add_sampled(small).hex(), before);
}

TEST(Fingerprint, TensorDependsOnNameTypeShapeAndBytes) {
  const std::vector<int64_t> wide{1, 4}, tall{4, 1};
  const std::vector<std::byte> zeros(16), ones(16, std::byte{1});
  const auto print = [](auto name, auto type, const auto& shape, const auto& bytes) {
    return Fingerprint("t").add_tensor(name, type, shape, bytes).hex();
  };
  const std::set<std::string> all{print("a", "F32", wide, zeros), print("b", "F32", wide, zeros),
                                  print("a", "I32", wide, zeros), print("a", "F32", tall, zeros),
                                  print("a", "F32", wide, ones)};
  EXPECT_EQ(all.size(), 5U);
}

TEST(MappedFile, ShowsTheBytesAndRefusesWhatIsNoFile) {
  const dflash::testing::TempFolder folder;
  dflash::testing::write_file(folder / "f", std::string(10000, 'x'));
  const auto file = MappedFile::open(folder / "f");
  ASSERT_EQ(file->bytes().size(), 10000U);
  will_need(file->bytes());
  done_with(file->bytes().subspan(1, 9000));
  for (const std::byte value : file->bytes()) ASSERT_EQ(value, std::byte{'x'});
  dflash::testing::write_file(folder / "empty", "");
  EXPECT_TRUE(MappedFile::open(folder / "empty")->bytes().empty());
  EXPECT_THROW(MappedFile::open(folder / "absent"), Error);
  EXPECT_THROW(MappedFile::open(folder.path()), Error);
  EXPECT_THROW(MappedFile::open("/dev/null"), Error);
}

}  // namespace
}  // namespace dflash::io
