// --profile from outside: a trace that Chrome opens and a table that covers the work.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

/// Every event lies in the one around it, none of one level overlap; returns the covered share.
double covered_share(const Json& trace) {
  const double total = trace["otherData"]["total_ms"].get<double>() * 1e3;
  std::vector<double> ends;
  double covered = 0, last = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["tid"] != 0) continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(begin + 1e-3, last);
    last = begin;
    while (!ends.empty() && ends.back() <= begin + 1e-3) ends.pop_back();
    if (ends.empty()) {
      covered += end - begin;
    } else {
      EXPECT_LE(end, ends.back() + 1e-3) << event.dump();
    }
    ends.push_back(end);
  }
  EXPECT_LE(covered, total + 1e-3);
  return covered / total;
}

TEST(ProfileOption, GenerateWritesATraceAndATable) {
  const auto target = testing::source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(target)) GTEST_SKIP() << "run 'make setup' for the default target";
  const testing::TempFolder folder;
  const std::string file = (folder / "trace.json").string(), err = (folder / "err").string();
  const std::string command = tree::program().string() +
                              " generate hi --proposer lookup --max-new 8" + " --target " +
                              target.string() + " --profile " + file + " > /dev/null 2> " + err;
  ASSERT_EQ(std::system(command.c_str()), 0) << testing::read_file(err);
  const Json trace = read_json(file);
  EXPECT_GT(covered_share(trace), 0.5);
  std::set<std::string> names;
  for (const Json& event : trace["traceEvents"]) names.insert(event["name"]);
  for (const char* name : {"target", "q, k and v", "attention", "o", "gate and up", "down", "norms",
                           "argmax", "embedding", "commit"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  const std::string table = testing::read_file(err);
  for (const char* word : {"GFLOP/s", "share", "not covered", "gate and up", "total"}) {
    EXPECT_NE(table.find(word), std::string::npos) << word << "\n" << table;
  }
}

TEST(ProfileOption, AFolderThatIsMissingIsSaidFirst) {
  const std::string command =
      tree::program().string() +
      " generate hi --target none.gguf --profile /none/t.json > /dev/null 2>&1";
  EXPECT_NE(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace dflash
