// The detector of looping answers: what it must find, and what it must leave alone.
#include "data/loops.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/rng.h"

namespace dflash::data {
namespace {

std::vector<int64_t> counting(int64_t size, int64_t first = 1000) {
  std::vector<int64_t> ids(size);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::vector<int64_t> operator+(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int64_t> repeat(const std::vector<int64_t>& unit, int64_t length) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < length; ++i) out.push_back(unit[i % unit.size()]);
  return out;
}

TEST(Loops, TailOfOneTokenAndOfPhrases) {
  const auto fizz = find_loop(counting(40) + repeat({7}, 24));
  ASSERT_TRUE(fizz);
  EXPECT_TRUE(fizz->at_tail);
  EXPECT_EQ(fizz->period, 1);
  EXPECT_EQ(fizz->begin, 40);
  EXPECT_EQ(fizz->length, 24);
  EXPECT_DOUBLE_EQ(fizz->share, 24.0 / 64.0);
  EXPECT_FALSE(find_loop(counting(40) + repeat({7}, 23)));  // one token short of the bound

  const auto line = find_loop(counting(200) + repeat(counting(20, 1), 83));  // 4 copies and a bit
  ASSERT_TRUE(line);
  EXPECT_EQ(line->period, 20);
  EXPECT_EQ(line->length, 83);
  EXPECT_FALSE(find_loop(counting(200) + repeat(counting(20, 1), 79)));  // not quite 4 copies
}

TEST(Loops, EndsElsewhereButCoversMost) {
  const auto found = find_loop(repeat({1, 2}, 60) + counting(40));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->at_tail);
  EXPECT_DOUBLE_EQ(found->share, 0.6);
  EXPECT_FALSE(find_loop(repeat({1, 2}, 40) + counting(60)));
}

TEST(Loops, LeavesOrdinaryTextAlone) {
  EXPECT_FALSE(find_loop({}));
  EXPECT_FALSE(find_loop(counting(1)));
  EXPECT_FALSE(find_loop(counting(500)));
  EXPECT_FALSE(find_loop(repeat({5}, 12)));     // "!!!!!!!!!!!!": short
  for (uint64_t seed = 0; seed < 50; ++seed) {  // few words, many chance repeats
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < 300; ++i) ids.push_back(uniform_below(4, {seed, i}));
    EXPECT_FALSE(find_loop(ids)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace dflash::data
