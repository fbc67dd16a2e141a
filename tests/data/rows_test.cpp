// Shapes of training records, and records that are rejected whole.
#include "data/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dflash::data {
namespace {

using testing::ElementsAre;

std::vector<std::string> turns(const std::string& json) {
  const ParsedRow parsed = parse_row(Json::parse(json));
  const Row* row = std::get_if<Row>(&parsed);
  if (!row) return {"rejected: " + std::get<Rejected>(parsed).reason};
  std::vector<std::string> out;
  for (const auto& message : row->messages) out.push_back(message.role + "=" + message.content);
  return out;
}

std::string reason(const std::string& json) {
  const ParsedRow parsed = parse_row(Json::parse(json));
  const auto* rejected = std::get_if<Rejected>(&parsed);
  return rejected ? rejected->reason : "accepted";
}

TEST(Rows, UsualShapes) {
  EXPECT_THAT(turns(R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},
                        {"role":"assistant","content":"a"}]})"),
              ElementsAre("system=s", "user=u", "assistant=a"));
  EXPECT_THAT(
      turns(R"({"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]})"),
      ElementsAre("user=u", "assistant=a"));
  EXPECT_THAT(turns(R"({"prompt":"u","response":"a"})"), ElementsAre("user=u", "assistant=a"));
  EXPECT_THAT(turns(R"({"instruction":"u","input":"i","output":"a"})"),
              ElementsAre("user=u\n\ni", "assistant=a"));
  EXPECT_THAT(turns(R"({"instruction":"u","input":"","output":"a"})"),
              ElementsAre("user=u", "assistant=a"));
  EXPECT_THAT(turns(R"({"messages":[{"role":"user","content":[{"type":"text","text":"x"},
                        {"type":"text","text":"y"}]}]})"),
              ElementsAre("user=xy"));
}

TEST(Rows, ExactIdsComeFirst) {
  const ParsedRow parsed =
      parse_row(Json::parse(R"({"id":"p#0","prompt_ids":[1,2],"answer_ids":[3],"prompt":"x"})"));
  const Row& row = std::get<Row>(parsed);
  EXPECT_EQ(row.kind, Row::Kind::kExactIds);
  EXPECT_EQ(row.id, "p#0");
  EXPECT_THAT(row.prompt_ids, ElementsAre(1, 2));
  EXPECT_THAT(row.answer_ids, ElementsAre(3));
  EXPECT_EQ(reason(R"({"prompt_ids":[1.5],"answer_ids":[3]})"),
            "ids are not a list of whole numbers");
}

TEST(Rows, RejectedWhole) {
  // PREP-02: a role that carries the model's name
  EXPECT_EQ(reason(R"({"conversations":[{"from":"human","value":"u"},
                       {"from":"laguna_s","value":"a"}]})"),
            "unknown role");
  EXPECT_EQ(reason(R"({"conversations":[]})"), "empty conversation");  // PREP-03
  EXPECT_EQ(reason(R"({"messages":[{"role":"system","content":"s"}]})"), "empty conversation");
  // PREP-04
  EXPECT_EQ(reason(R"({"messages":[{"role":"assistant","content":"a"}]})"),
            "broken order of roles");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})"),
            "broken order of roles");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":null}]})"),
            "message content is not text");
  EXPECT_EQ(reason(R"({"messages":"x"})"), "conversation is not a list");
  EXPECT_EQ(reason(R"({"messages":[3]})"), "message is not an object");
  EXPECT_EQ(reason(R"({"other":1})"), "no known fields");
  EXPECT_EQ(reason("[1]"), "line is not a JSON object");
  EXPECT_EQ(reason(R"({"tools":[{"type":"function"}],"messages":[{"role":"user","content":"u"}]})"),
            "has tools, which the chat template does not render");
}

// R-PREP-6 as far as it goes without tools in the template: every spelling of the same tools has
// the same outcome, and so has every spelling of none.
TEST(Rows, ToolsAreSeenInEverySpelling) {
  const auto with = [](const Json& tools) {
    return reason(
        Json{{"tools", tools},
             {"messages",
              {{{"role", "user"}, {"content", "u"}}, {{"role", "assistant"}, {"content", "a"}}}}}
            .dump());
  };
  const Json tool = {{"name", "f"}, {"parameters", Json::object()}};
  const Json wrapped = {{"type", "function"}, {"function", tool}};
  for (const Json& tools :
       {Json::array({wrapped}), Json::array({tool}), Json::array({wrapped.dump()}),
        Json(Json::array({wrapped}).dump()), Json("not JSON")}) {
    EXPECT_EQ(with(tools), "has tools, which the chat template does not render") << tools;
  }
  for (const Json& none : {Json(), Json(""), Json::array(), Json("[]"), Json("null")}) {
    EXPECT_EQ(with(none), "accepted") << none;
  }
}

TEST(Rows, FirstReasoningFieldDecides) {  // R-PREP-9
  const auto with = [](const std::string& fields) {
    return reason(R"({"messages":[{"role":"user","content":"u"},
                      {"role":"assistant","content":"a",)" +
                  fields + "}]}");
  };
  EXPECT_EQ(with(R"("reasoning_content":"","reasoning":"z")"), "accepted");
  EXPECT_EQ(with(R"("reasoning_content":null,"reasoning":"z")"),
            "has reasoning, which the chat template does not render");
  EXPECT_EQ(with(R"("thinking":"z")"), "has reasoning, which the chat template does not render");
}

}  // namespace
}  // namespace dflash::data
