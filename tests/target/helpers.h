// What the tests of targets share: golden files, a sequence of rows, comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "nn/tensor_io.h"
#include "support/paths.h"
#include "support/record_error.h"
#include "target/target.h"

namespace dflash::target {

inline std::filesystem::path golden(const std::string& name) {
  return tree::root() / "tests/golden/target" / name;
}

inline std::filesystem::path smol_path() {
  const char* assets = std::getenv("DFLASH_ASSETS");
  const std::filesystem::path folder =
      assets ? std::filesystem::path(assets) : tree::root() / "assets";
  return folder / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// One sequence's part of a pass: its state and the ids that follow its committed rows.
struct Feed {
  State* state;
  std::vector<int64_t> ids;
};

/// One pass over all feeds, rows in order; nothing is committed.
inline Hidden pass(const Target& target, const std::vector<Feed>& feeds,
                   const std::vector<int64_t>& taps = {}) {
  std::vector<int64_t> ids, positions;
  std::vector<Segment> segments;
  for (const Feed& feed : feeds) {
    segments.push_back(
        {feed.state, static_cast<int64_t>(ids.size()), static_cast<int64_t>(feed.ids.size())});
    for (size_t i = 0; i < feed.ids.size(); ++i) {
      ids.push_back(feed.ids[i]);
      positions.push_back(feed.state->length() + static_cast<int64_t>(i));
    }
  }
  return target.forward({at::tensor(ids, at::kLong), at::tensor(positions, at::kLong), segments},
                        {taps});
}

/// A pass over one sequence, all of it committed.
inline Hidden advance(const Target& target, State& state, const std::vector<int64_t>& ids,
                      const std::vector<int64_t>& taps = {}) {
  Hidden hidden = pass(target, {{&state, ids}}, taps);
  state.commit(static_cast<int64_t>(ids.size()));
  return hidden;
}

inline at::Tensor logits(const Target& target, const at::Tensor& last_RD) {
  return target.head().logits(target.final_norm(last_RD));
}

inline void expect_bits_equal(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  EXPECT_TRUE(a.equal(b)) << what << ": largest difference " << (a - b).abs().max().item<double>();
}

/// |got - want| <= bound for every element; reports the worst.
inline void expect_within(const at::Tensor& got, const at::Tensor& want, double bound,
                          const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const at::Tensor difference = (got - want).abs().flatten();
  const auto worst = difference.argmax().item<int64_t>();
  report::record_error(what, difference[worst].item<double>(), bound);
  EXPECT_LE(difference[worst].item<double>(), bound)
      << what << ": element " << worst << ": got " << got.flatten()[worst].item<double>()
      << ", expected " << want.flatten()[worst].item<double>();
}

/// The message of the dflash::Error that `run` throws; fails the test when it throws none.
template <typename Run>
std::string error_of(Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace dflash::target
