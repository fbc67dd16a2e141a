// quickstart from outside: what it keeps and what it says.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/json.h"
#include "cli/run.h"

namespace dflash {
namespace {

using testing::TempFolder;

// What an earlier call left is shown for the same options alone, and read with care.
TEST(Quickstart, ComparesOptions) {
  TempFolder folder;
  const std::string call = "quickstart --out " + folder.path().string();
  testing::write_file(folder / "summary.json",
                      R"({"options": {"minutes": 6.0, "short": false, "limit": 8},
                          "total_minutes": 9.5, "text_identical": true})");
  const auto same = run(call);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_NE(same.out.find("9.5 min"), std::string::npos) << same.out;
  for (const char* other : {" --minutes 2", " --short", " --limit 3"}) {
    const auto refused = run(call + other);
    EXPECT_EQ(refused.code, 1) << other;
    EXPECT_NE(refused.err.find("(now "), std::string::npos) << refused.err;
  }
  testing::write_file(folder / "summary.json", "[]");
  const auto broken = run(call);
  EXPECT_EQ(broken.code, 1);
  EXPECT_NE(broken.err.find("summary.json: not as the quickstart"), std::string::npos)
      << broken.err;
  EXPECT_EQ(run(call + " --fresh --target " + (folder / "none").string()).code, 1);
  EXPECT_EQ(testing::read_file(folder / "config.toml").find("fresh"), std::string::npos)
      << "the file of options must not start over";
}

TEST(Quickstart, ShowsEveryWayOfDraftingInOneTable) {
  TempFolder folder;
  const auto arm = [](const char* name, double tau, double without_loops) -> Json {
    return {{"name", name},
            {"tau", tau},
            {"tau_without_loops", without_loops},
            {"tok_s", 50.0 * tau},
            {"speedup", tau}};
  };
  const auto set = [&](double tau) -> Json {
    return {{"prompts", 8},
            {"looping", 2},
            {"arms",
             {arm("plain decoding", 1, 1), arm("bundled drafter, combined", tau, 0),
              arm("your drafter", 1.25, 1.5)}}};
  };
  const Json summary = {{"options", Json::object()},
                        {"total_minutes", 9.5},
                        {"text_identical", true},
                        {"bundled_drafter", "there"},
                        {"drafter", "run/model"},
                        {"train_minutes", 5.9},
                        {"comparison", {{"heldout", set(2.5)}, {"humaneval", set(3)}}}};
  testing::write_file(folder / "summary.json", summary.dump());
  const auto shown = run("quickstart --out " + folder.path().string());
  ASSERT_EQ(shown.code, 0) << shown.err;
  const auto has = [&](const std::string& line) {
    EXPECT_NE(shown.out.find(line + "\n"), std::string::npos) << line << "\n" << shown.out;
  };
  has("  bundled drafter, combined     2.50         -   125.0    2.50"
      "    3.00         -   150.0    3.00");
  has("  your drafter                  1.25      1.50    62.5    1.25"
      "    1.25      1.50    62.5    1.25");
  has("  try it     dflash-cpp chat --drafter run/model");
  std::istringstream lines(shown.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace dflash
