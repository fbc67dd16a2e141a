// How far a comparison was from what another program wrote, kept in the test's report
// (--gtest_output=json): tests/peers/parity_table.py makes its table of it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace dflash::report {

/// The worst error of all calls with this name in one test, and the bound it had to stay below.
inline void record_error(const std::string& what, double error, double bound) {
  static std::map<std::pair<const ::testing::TestInfo*, std::string>, double> worst;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  double& kept = worst[{test, what}];
  kept = std::max(kept, error);
  ::testing::Test::RecordProperty("error of " + what, fmt::format("{:.3g} <= {:.3g}", kept, bound));
}

}  // namespace dflash::report
