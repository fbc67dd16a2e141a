// Valid files with random damage: every reader either opens them or throws Error; never a crash, a
// foreign exception or an endless loop. Seeded, so a failing case can be repeated by its number.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "io/gguf.h"
#include "io/jsonl.h"
#include "io/records.h"
#include "io/safetensors.h"
#include "support/memory_file.h"
#include "support/temp_folder.h"

namespace dflash::io {
namespace {

using dflash::testing::MemoryFile;
using dflash::testing::read_file;
using dflash::testing::source_path;

constexpr uint64_t kHostile[] = {0,          1,          0x7f,       0x80,
                                 0xff,       0xffff,     1ULL << 31, 1U << 24,
                                 UINT32_MAX, 1ULL << 32, 1ULL << 48, 1ULL << 62,
                                 1ULL << 63, INT64_MAX,  UINT64_MAX, UINT64_MAX - 31};

/// One to four edits: a byte, a hostile integer, a piece cut out, a piece repeated, the end cut
/// off.
std::string mutate(std::string bytes, uint64_t seed) {
  uint64_t draw = 0;
  const auto below = [&](uint64_t bound) { return uniform_below(bound, {seed, draw++}); };
  const uint64_t edits = 1 + below(4);
  for (uint64_t i = 0; i < edits && !bytes.empty(); ++i) {
    const size_t at = below(bytes.size());
    const size_t length = std::min<size_t>(1 + below(40), bytes.size() - at);
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1: {
        const uint64_t value = kHostile[below(std::size(kHostile))];
        std::memcpy(&bytes[at], &value, std::min<size_t>(length, sizeof(value)));
        break;
      }
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        bytes.resize(below(8) == 0 ? at : bytes.size());
        break;
    }
  }
  return bytes;
}

using Open = std::function<void(const std::filesystem::path&)>;

/// Runs `open` on 3000 damaged versions of `whole`, each followed by `tail`, and returns how many
/// it accepted.
int64_t accepted(const std::string& whole, const std::string& tail, const Open& open) {
  constexpr uint64_t kCases = 3000;
  int64_t count = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const MemoryFile file(mutate(whole, seed) + tail);
    try {
      open(file.path());
      ++count;
    } catch (const Error&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << "case " << seed << ": " << error.what();
    }
  }
  return count;
}

TEST(Mutation, Safetensors) {
  const std::string whole = read_file(source_path("tests/golden/io/plain.safetensors"));
  const int64_t good = accepted(whole, "", [](const auto& path) {
    const auto file = Checkpoint::open(path);
    uint64_t sum = 0;
    for (const TensorView& view : file->tensors()) {
      for (const std::byte value : view.bytes) sum += std::to_integer<uint64_t>(value);
    }
    ASSERT_LT(sum, UINT64_MAX);
  });
  EXPECT_GT(good, 50);
  EXPECT_LT(good, 2950);
}

TEST(Mutation, Gguf) {
  // Damage in the first 2 KB meets the header; in the rest it only meets weights.
  const std::string whole = read_file(source_path("tests/golden/io/types.gguf"));
  const std::string head = whole.substr(0, 2048), tail = whole.substr(2048);
  const int64_t good = accepted(head, tail, [](const auto& path) {
    const auto file = GgufFile::open(path);
    for (const GgufTensor& tensor : file->tensors()) {
      std::vector<float> out(tensor.numel());
      tensor.widen(out);
    }
  });
  EXPECT_GT(good, 50);
  EXPECT_LT(good, 2950);
}

TEST(Mutation, JsonLines) {
  std::string whole;
  for (int i = 0; i < 8; ++i)
    whole += R"({"id":1,"messages":[{"role":"user","content":"a\u00e9b"}]})"
             "\r\n";
  const int64_t good = accepted(whole, "", [](const auto& path) {
    read_jsonl(path, {}, [](int64_t, const Json& record) { ASSERT_FALSE(record.dump().empty()); });
  });
  EXPECT_GT(good, 50);
  EXPECT_LT(good, 2950);
}

// kSkip: the reader looks for the next record behind the damage.
TEST(Mutation, JsonArray) {
  std::string whole = "[";
  for (int i = 0; i < 8; ++i)
    whole += R"({"id":1,"messages":[{"role":"user","content":"a\u00e9b"}]},)"
             "\n";
  whole.replace(whole.size() - 2, 2, "]");
  int64_t read = 0;
  const int64_t good = accepted(whole, "", [&](const auto& path) {
    const RecordOptions options{.on_bad = OnBadLine::kSkip};
    read_records(path, options, [&](const auto&, const OrderedJson& record) {
      ASSERT_FALSE(record.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).empty());
      ++read;
    });
  });
  EXPECT_GT(good, 1000);
  EXPECT_LT(good, 3000);
  EXPECT_GT(read, 6 * good / 2);
}

}  // namespace
}  // namespace dflash::io
