// One thing under two names, turns kept out of training, and what a tool call may hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/rows.h"
#include "data/tools.h"

namespace dflash::data {
namespace {

using testing::HasSubstr;

std::string reason(const std::string& json) {
  const ParsedRow parsed = parse_row(OrderedJson::parse(json));
  const auto* rejected = std::get_if<Rejected>(&parsed);
  return rejected ? rejected->reason : "accepted";
}

std::string last_text(const std::string& json) {
  const ParsedRow parsed = parse_row(OrderedJson::parse(json));
  return std::get<Row>(parsed).conversation.messages.back().content;
}

TEST(RowsFields, OfTwoNamesTheFilledOne) {
  EXPECT_EQ(last_text(R"({"prompt":"u","response":"","completion":"a"})"), "a");
  EXPECT_EQ(last_text(R"({"prompt":"","instruction":"u"})"), "u");
  EXPECT_EQ(last_text(R"({"messages":[],"conversations":[{"from":"human","value":"u"}]})"), "u");
  EXPECT_EQ(last_text(R"({"messages":[{"role":"user","content":"","value":"u"}]})"), "u");
  EXPECT_EQ(last_text(R"({"messages":[],"prompt":"u"})"), "u");
  EXPECT_EQ(last_text(R"({"prompt":"u","instruction":"u"})"), "u");
}

TEST(RowsFields, TwoThatDifferAreRejected) {
  EXPECT_EQ(reason(R"({"prompt":"u","instruction":"v"})"), "prompt and instruction that differ");
  EXPECT_EQ(reason(R"({"prompt":"u","response":"a","completion":"b"})"),
            "response and completion and output that differ");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"u","value":"v"}]})"),
            "content and value that differ");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","from":"gpt","content":"u"}]})"),
            "role and from that differ");
}

TEST(RowsFields, AnAnswerBesideMessagesIsNotLost) {
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"u"}],"response":"a"})"),
            "more beside the messages");
  EXPECT_EQ(last_text(R"({"messages":[{"role":"user","content":"u"}],"response":""})"), "u");
  EXPECT_EQ(last_text(R"({"messages":[{"role":"user","content":"u"}],"prompt":"u"})"), "u");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"u"}],"prompt":"v"})"),
            "more beside the messages");
}

TEST(RowsFields, ParametersOfAToolUnderAnyOfTheirNames) {
  const auto tool = [](const std::string& fields) {
    return canonical_tools(OrderedJson::parse(R"([{"name":"f",)" + fields + "}]"))[0].dump();
  };
  const std::string want =
      R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";
  EXPECT_EQ(tool(R"("parameters":{"type":"object"})"), want);
  EXPECT_EQ(tool(R"("input_schema":{"type":"object"})"), want);
  EXPECT_EQ(tool(R"("inputSchema":{"type":"object"},"parameters":null)"), want);
  EXPECT_EQ(tool(R"("parameters":"{\"type\":\"object\"}")"), want);
  EXPECT_THROW(tool(R"("parameters":{"a":1},"input_schema":{"a":2})"), Error);
  EXPECT_THROW(tool(R"("parameters":[1])"), Error);
  EXPECT_EQ(
      canonical_tools(OrderedJson::parse(R"([{"type":null,"function":{"name":"f"}}])")).dump(),
      R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(RowsFields, EmptyQuestion) {
  EXPECT_EQ(reason(R"({"prompt":" \n","response":"a"})"), "empty question");
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":""}]})"), "empty question");
  EXPECT_EQ(last_text(R"({"instruction":"","input":"i"})"), "i");
}

TEST(RowsFields, TurnsOutOfTrainingAreNotTrained) {
  for (const char* mark :
       {R"("weight":0)", R"("weight":0.0)", R"("train":false)", R"("weight":"0")", R"("weight":-1)",
        R"("train":0)", R"("loss":false)"}) {
    const std::string record =
        std::string(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant",)") + mark +
        R"(,"content":"a"},{"role":"user","content":"v"}]})";
    EXPECT_EQ(reason(record), "kept out of training by its author");
    // Asked, not trained on.
    EXPECT_TRUE(std::holds_alternative<Row>(parse_prompt(OrderedJson::parse(record)))) << record;
  }
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":"u","weight":1}]})"), "accepted");
  EXPECT_EQ(reason(R"({"prompt":"u","response":"a","weight":0})"),
            "kept out of training by its author");
  EXPECT_EQ(reason(R"({"prompt":"u","response":"a","weight":1,"loss":0.0})"), "accepted");
  EXPECT_EQ(reason(R"({"messages":[],"conversations":[{"from":"human","value":"u"},
                       {"from":"gpt","value":"a","weight":0}]})"),
            "kept out of training by its author");
}

std::string call(const std::string& json) {
  return canonical_calls(OrderedJson::parse(json))[0]["function"].dump();
}

TEST(RowsFields, ArgumentsUnderAnyOfTheirNames) {
  for (const char* name : {"arguments", "parameters", "input", "args"}) {
    EXPECT_EQ(call(R"({"name":"f",")" + std::string(name) + R"(":{"x":1}})"),
              R"({"name":"f","arguments":{"x":1}})");
  }
  EXPECT_EQ(call(R"({"type":"tool_use","id":"7","name":"f","input":{"x":1}})"),
            R"({"name":"f","arguments":{"x":1}})");
  EXPECT_THROW(call(R"({"name":"f","arguments":{"x":1},"parameters":{"x":2}})"), Error);
}

TEST(RowsFields, NothingOfACallIsDropped) {
  for (const char* bad : {R"({"function":{"name":"f"},"arguments":{"x":1}})",
                          R"({"function":{"name":"f","kwargs":{"x":1}}})"}) {
    try {
      call(bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("unknown key"));
    }
  }
}

TEST(RowsFields, IdsThatWouldBeOne) {
  EXPECT_EQ(reason(R"({"id":123456789012345678901,"prompt":"u"})"), "an id that is rounded");
  const auto id_of = [](const std::string& id) {
    return std::get<Row>(parse_row(OrderedJson::parse(R"({"prompt":"u","id":)" + id + "}"))).id;
  };
  EXPECT_EQ(id_of("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(id_of("1.5"), "1.5");
  EXPECT_EQ(id_of(R"({"a":1})"), R"({"a":1})");
  EXPECT_EQ(id_of("null"), "");
}

}  // namespace
}  // namespace dflash::data
