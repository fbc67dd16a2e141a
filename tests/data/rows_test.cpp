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
  for (const auto& message : row->conversation.messages) {
    out.push_back(message.role + "=" + message.content);
  }
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
            "tools that cannot be read");
}

TEST(Rows, OrderOfRoles) {
  const auto of = [](const std::string& roles) {  // C: an answer with a call
    Json list = Json::array();
    for (const char letter : roles) {
      const char* role = letter == 's'   ? "system"
                         : letter == 'd' ? "developer"
                         : letter == 'u' ? "user"
                         : letter == 't' ? "tool"
                                         : "assistant";
      list.push_back({{"role", role}, {"content", "x"}});
      if (letter == 'C') list.back()["tool_calls"] = {{{"name", "f"}}};
    }
    return reason(Json{{"messages", list}}.dump());
  };
  for (const char* good : {"u", "sua", "dua", "sdua", "uau", "uCta", "uCttCtau", "uCt", "uata"}) {
    EXPECT_EQ(of(good), "accepted") << good;
  }
  // PREP-04: a tool's turn right after a user's; calls that nothing answered
  for (const char* bad : {"uta", "tua", "uCua", "uCa", "uaa", "ssua", "dsua", "usa", "uCtu"}) {
    EXPECT_EQ(of(bad), "broken order of roles") << bad;
  }
  EXPECT_EQ(of("sd"), "empty conversation");
}

Row row_of(const std::string& json) {
  return std::get<Row>(parse_row(OrderedJson::parse(json)));
}

/// The answer of a conversation with these fields beside its text.
text::Message answer_with(const std::string& fields) {
  return row_of(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a",)" +
                fields + "}]}")
      .conversation.messages[1];
}

std::string reason_with(const std::string& fields) {
  return reason(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a",)" +
                fields + "}]}");
}

OrderedJson tools_of(const std::string& spelling) {
  return row_of(R"({"messages":[{"role":"user","content":"u"}],"tools":)" + spelling + "}")
      .conversation.tools;
}

// R-PREP-6, PREP-15, PREP-16: every spelling of the same tools is the same list.
TEST(Rows, ToolsAreReadInEverySpelling) {
  const std::string bare = R"({"name":"f","description":"d",)"
                           R"("parameters":{"type":"object","properties":{"b":{},"a":{}}}})";
  const std::string wrapped = R"({"type":"function","function":)" + bare + "}";
  const auto text = [](const std::string& json) { return Json(json).dump(); };
  const std::vector<std::string> spellings = {
      "[" + wrapped + "]",
      "[" + bare + "]",
      text("[" + wrapped + "]"),
      "[" + text(wrapped) + "]",
      "[" + text(bare) + "]",
      R"([{"function":)" + bare + R"(,"type":"function"}])",
      R"([{"type":"function",)" + bare.substr(1) + "]",
      R"([{"function":{"parameters":{"type":"object","properties":{"b":{},"a":{}}},)"
      R"("description":"d","strict":null,"name":"f"}}])"};
  for (const std::string& spelling : spellings) {
    EXPECT_EQ(tools_of(spelling).dump(), "[" + wrapped + "]") << spelling;
  }
  for (const char* none : {"null", R"("")", "[]", R"("[]")", R"("null")"}) {
    EXPECT_TRUE(tools_of(none).is_null()) << none;
  }
  for (const char* odd : {R"("not JSON")", "{}", "[1]", R"([{"type":"function"}])", R"(["x"])"}) {
    EXPECT_EQ(
        reason(std::string(R"({"messages":[{"role":"user","content":"u"}],"tools":)") + odd + "}"),
        "tools that cannot be read")
        << odd;
  }
}

// PREP-16: arguments are an object, whatever they were written as.
TEST(Rows, CallsAreReadInEverySpelling) {
  const std::string call =
      R"({"type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}})";
  for (const std::string spelling :
       {R"("tool_calls":[{"function":{"arguments":{"b":1,"a":2},"name":"f"},"type":"function"}])",
        R"("tool_calls":[{"name":"f","arguments":"{\"b\":1,\"a\":2}"}])",
        R"("tool_calls":"[{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":2}}]")",
        R"("function_call":{"name":"f","arguments":"{\"b\": 1, \"a\": 2}"})"}) {
    EXPECT_EQ(answer_with(spelling).more["tool_calls"].dump(), "[" + call + "]") << spelling;
  }
  EXPECT_EQ(answer_with(R"("tool_calls":[{"name":"f","id":"7","arguments":""}])").more.dump(),
            R"({"tool_calls":[{"id":"7","type":"function","function":)"
            R"({"name":"f","arguments":{}}}]})");
  EXPECT_TRUE(answer_with(R"("tool_calls":[],"function_call":null)").more.is_null());
  for (const char* odd : {R"("tool_calls":[{"name":"f","arguments":"{'a': 1}"}])",
                          R"("tool_calls":[{"name":"f","arguments":[1]}])",
                          R"("tool_calls":[{"arguments":{}}])", R"("tool_calls":7)"}) {
    EXPECT_EQ(reason_with(odd), "tool calls that cannot be read") << odd;
  }
}

TEST(Rows, ToolMessagesByAnyName) {
  for (const char* role : {"tool", "function", "observation"}) {
    const Row row = row_of(
        R"({"messages":[{"role":"user","content":"u"},
            {"role":"assistant","content":null,"tool_calls":[{"name":"f"}]},
            {"role":")" +
        std::string(role) + R"(","name":"f","tool_call_id":"7","content":[{"text":"r"}]}]})");
    EXPECT_EQ(row.conversation.messages[1].content, "");
    EXPECT_EQ(row.conversation.messages[2].role, "tool");
    EXPECT_EQ(row.conversation.messages[2].content, "r");
    EXPECT_EQ(row.conversation.messages[2].more.dump(), R"({"name":"f","tool_call_id":"7"})");
  }
}

TEST(Rows, FirstReasoningFieldDecides) {  // R-PREP-9, PREP-12, PREP-13
  const auto reasoning = [](const std::string& fields) {
    return answer_with(fields).more["reasoning_content"].dump();
  };
  EXPECT_EQ(reasoning(R"("reasoning_content":"","reasoning":"z")"), R"("")");
  EXPECT_EQ(reasoning(R"("reasoning_content":null,"reasoning":"z")"), R"("z")");
  EXPECT_EQ(reasoning(R"("thinking":"t","reasoning":"z")"), R"("t")");
  EXPECT_TRUE(answer_with(R"("thinking":null)").more.is_null());
  EXPECT_EQ(reason_with(R"("thinking":{"text":"t"})"), "reasoning is not text");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"u","reasoning":"r"}]})"),
            "reasoning outside an answer");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"u","tool_calls":[{"name":"f"}]}]})"),
            "tool calls outside an answer");
}

}  // namespace
}  // namespace dflash::data
