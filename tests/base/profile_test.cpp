// Ranges, their table and their trace.
#include "base/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "base/files.h"
#include "support/temp_folder.h"

namespace dflash::profile {
namespace {

void spin(int64_t microseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

Profile two_steps() {
  start();
  for (int i = 0; i < 2; ++i) {
    const Range step("training", "step");
    spin(300);
    {
      const Range outer("drafter", "forward");
      const Range inner("drafter", "product", [] { return product(10, 20, 30, 2); });
      spin(1000);
    }
    Range part("training", "check");
    part.next("update", [] { return Work{.bytes = 1e6}; });
    spin(500);
  }
  spin(400);
  return stop();
}

TEST(Profile, OffRecordsNothingAndAsksForNoWork) {
  int asked = 0;
  {
    const Range range("a", "b", [&] {
      ++asked;
      return Work{};
    });
  }
  EXPECT_EQ(asked, 0);
  start();
  const Profile empty = stop();
  EXPECT_TRUE(empty.events.empty());
  ASSERT_EQ(table(empty).size(), 1U);
  EXPECT_EQ(table(empty)[0].group, "not covered");
}

TEST(Profile, OwnTimesSumToTheTotal) {
  const Profile profile = two_steps();
  const std::vector<Row> rows = table(profile);
  std::map<std::string, Row> by_name;
  double ms = 0, share = 0;
  for (const Row& row : rows) {
    by_name[row.name] = row;
    ms += row.ms;
    share += row.share;
    EXPECT_GE(row.ms, 0);
  }
  EXPECT_NEAR(ms, static_cast<double>(profile.total_ns) / 1e6, 1e-6);
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_EQ(by_name["product"].calls, 2);
  EXPECT_GE(by_name["product"].ms, 2.0);
  EXPECT_LT(by_name["forward"].ms, by_name["product"].ms);  // its own time, without the product
  EXPECT_GE(by_name["step"].ms, 0.6);
  EXPECT_GE(by_name[""].ms, 0.4);  // not covered
  EXPECT_EQ(rows.back().group, "not covered");
  for (size_t i = 0; i + 2 < rows.size(); ++i) EXPECT_GE(rows[i].ms, rows[i + 1].ms);
  const Row& product = by_name["product"];
  EXPECT_NEAR(product.gflops * product.ms * 1e6, 2 * 2.0 * 10 * 20 * 30, 1e-3);
  EXPECT_NEAR(by_name["update"].gbs * by_name["update"].ms * 1e6, 2e6, 1e-3);
  EXPECT_NE(text(profile).find("not covered"), std::string::npos);
}

// Every event lies inside the one around it, and those of one level do not overlap.
TEST(Profile, TheTraceIsChromesAndNests) {
  const testing::TempFolder folder;
  const Profile profile = two_steps();
  write_trace(profile, folder / "trace.json");
  const Json trace = read_json(folder / "trace.json");
  const double total = trace["otherData"]["total_ms"].get<double>() * 1e3;
  std::vector<std::pair<double, double>> open;
  double top = 0;
  ASSERT_EQ(trace["traceEvents"].size(), 10U);
  for (const Json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["ph"], "X");
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    EXPECT_GE(begin, 0);
    EXPECT_LE(end, total + 1e-3);
    while (!open.empty() && open.back().second <= begin + 1e-6) open.pop_back();
    if (open.empty()) {
      top += end - begin;
    } else {
      EXPECT_LE(end, open.back().second + 1e-3);
    }
    open.emplace_back(begin, end);
  }
  EXPECT_LE(top, total);
  EXPECT_EQ(trace["traceEvents"][2]["args"]["operations"], 12000.0);
}

TEST(Profile, OtherThreadsStandApart) {
  start();
  std::thread other([] {
    const Range range("features", "read");
    spin(200);
  });
  other.join();
  {
    const Range range("training", "step");
    spin(100);
  }
  const Profile profile = stop();
  ASSERT_EQ(profile.events.size(), 2U);
  EXPECT_EQ(profile.events[0].thread, 0);
  EXPECT_EQ(profile.events[1].thread, 1);
  EXPECT_EQ(table(profile).size(), 2U);  // step, not covered
  EXPECT_NE(text(profile).find("other threads"), std::string::npos);
}

TEST(Profile, ARangeThatOutlivesItsProfileIsLeftOut) {
  start();
  {
    const Range range("a", "b");
    EXPECT_TRUE(stop().events.empty());
    start();
  }
  EXPECT_TRUE(stop().events.empty());
}

}  // namespace
}  // namespace dflash::profile
