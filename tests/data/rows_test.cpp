// Shapes of training records, and records that are rejected whole.
#include "data/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

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
  for (const char* odd : {"1.5", "18446744073709551615"}) {
    EXPECT_EQ(reason(std::string(R"({"answer_ids":[3],"prompt_ids":[)") + odd + "]}"),
              "ids are not a list of whole numbers");
  }
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
  EXPECT_EQ(reason("[1]"), "not a JSON object");
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
  for (const char* none : {"null", R"("")", "[]", R"("[]")", R"("null")", "{}"}) {
    EXPECT_TRUE(tools_of(none).is_null()) << none;
  }
  for (const char* odd : {R"("not JSON")", "[1]", R"([{"type":"function"}])", R"(["x"])"}) {
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

// Of calls and tools an empty field is as if absent; the other spelling is read.
TEST(Rows, AnEmptyFieldHidesNoCallsAndNoTools) {
  const std::string call = R"([{"type":"function","function":{"name":"f","arguments":{}}}])";
  for (const char* empty : {"[]", "{}", "null", R"("")", R"("[]")"}) {
    const std::string fields =
        std::string(R"("tool_calls":)") + empty + R"(,"function_call":{"name":"f"})";
    EXPECT_EQ(answer_with(fields).more["tool_calls"].dump(), call) << empty;
    const std::string tools = std::string(empty) + R"(,"functions":[{"name":"f"}])";
    EXPECT_EQ(tools_of(tools).dump(), R"([{"type":"function","function":{"name":"f"}}])") << empty;
  }
  EXPECT_EQ(tools_of(R"([{"name":"f"}],"functions":[{"name":"f"}])").size(), 1u);
  EXPECT_EQ(row_of(R"({"prompt":"u","tools":[{"name":"f"}]})").conversation.tools.size(), 1u);
}

TEST(Rows, TheSystemMessageOfARecord) {
  const std::string both = R"("messages":[{"role":"system","content":"s"},)"
                           R"({"role":"user","content":"u"}])";
  for (const std::string shape : {R"("messages":[{"role":"user","content":"u"}])",
                                  R"("conversations":[{"from":"human","value":"u"}])",
                                  R"("prompt":"u")", R"("instruction":"u")", both.c_str()}) {
    EXPECT_THAT(turns(R"({"system":"s",)" + shape + "}"), ElementsAre("system=s", "user=u"))
        << shape;
  }
  EXPECT_THAT(turns(R"({"system":[{"type":"text","text":"s"}],"prompt":"u"})"),
              ElementsAre("system=s", "user=u"));
  for (const char* none : {R"("")", "null", "[]", "{}"}) {
    EXPECT_THAT(turns(std::string(R"({"prompt":"u","system":)") + none + "}"),
                ElementsAre("user=u"));
  }
  EXPECT_EQ(reason(R"({"system":"t",)" + both + "}"), "two system messages that differ");
  EXPECT_EQ(reason(R"({"system":7,"prompt":"u"})"), "system is not text");
  EXPECT_EQ(reason(R"({"system":"s","conversations":[]})"), "empty conversation");
}

TEST(Rows, TwoFieldsThatDifferAreNoChoice) {
  const std::string user = R"("messages":[{"role":"user","content":"u"}])";
  EXPECT_EQ(
      reason(std::string("{") + user + R"(,"tools":[{"name":"f"}],"functions":[{"name":"g"}]})"),
      "tools that cannot be read");
  EXPECT_EQ(reason(std::string("{") + user + R"(,"conversations":[{"from":"human","value":"v"}]})"),
            "messages and conversations that differ");
  EXPECT_EQ(reason(R"({"instruction":"u","input":"i","context":"c","output":"a"})"),
            "input and context that differ");
  EXPECT_EQ(reason(R"({"prompt":"u","system":"s","system_prompt":"t"})"),
            "system and system_prompt that differ");
  for (const char* name : {"history", "input", "context"}) {
    EXPECT_EQ(reason(std::string("{") + user + ",\"" + name + "\":\"x\"}"),
              "more beside the messages")
        << name;
    EXPECT_THAT(turns(std::string("{") + user + ",\"" + name + "\":\"\"}"), ElementsAre("user=u"))
        << name;
  }
}

TEST(Rows, EveryFieldOfAQuestionIsRead) {
  EXPECT_THAT(turns(R"({"instruction":"u","context":"c","response":"a"})"),
              ElementsAre("user=u\n\nc", "assistant=a"));
  EXPECT_THAT(turns(R"({"prompt":"u","input":"i","response":"a"})"),
              ElementsAre("user=u\n\ni", "assistant=a"));
  EXPECT_THAT(turns(R"({"system_prompt":"s","prompt":"u"})"), ElementsAre("system=s", "user=u"));
}

TEST(Rows, APartThatIsNoTextIsNotReadForItsCaption) {
  for (const char* type : {R"("image")", R"("input_audio")", "7"}) {
    EXPECT_EQ(reason(std::string(R"({"messages":[{"role":"user","content":[{"type":)") + type +
                     R"(,"text":"see"}]}]})"),
              "message content is not text")
        << type;
  }
}

TEST(Rows, AnUnknownRoleIsCutBetweenCharacters) {
  const auto parsed =
      parse_row(OrderedJson::parse(R"({"messages":[{"role":")" + std::string(39, 'a') +
                                   "\u00e9\u00e9" + R"(","content":"x"}]})"));
  const auto& rejected = std::get<Rejected>(parsed);
  EXPECT_EQ(rejected.reason, "unknown role");
  EXPECT_EQ(rejected.detail, std::string(39, 'a'));
}

TEST(Rows, HistoryBecomesEarlierTurns) {
  EXPECT_THAT(turns(R"({"instruction":"u3","input":"i","output":"a3","system":"s",
                        "history":[["u1","a1"],["u2","a2"]]})"),
              ElementsAre("system=s", "user=u1", "assistant=a1", "user=u2", "assistant=a2",
                          "user=u3\n\ni", "assistant=a3"));
  EXPECT_THAT(turns(R"({"prompt":"u2","response":"a2","history":[["u1","a1"]]})"),
              ElementsAre("user=u1", "assistant=a1", "user=u2", "assistant=a2"));
  for (const char* none : {"[]", "null", R"("")"}) {
    EXPECT_THAT(turns(std::string(R"({"prompt":"u","history":)") + none + "}"),
                ElementsAre("user=u"));
  }
  for (const char* odd : {R"(["u1","a1"])", R"([["u1"]])", R"([["u1",null]])", R"("u1")", "7",
                          R"([{"user":"u1","assistant":"a1"}])", R"({"u1":"a1"})"}) {
    EXPECT_EQ(reason(std::string(R"({"prompt":"u","history":)") + odd + "}"),
              "history is not a list of questions and answers")
        << odd;
  }
}

TEST(Rows, WhatIsNoTextIsRejected) {
  for (const std::string field : {"images", "image", "audio", "videos"}) {
    const std::string some = "\"" + field + R"(":["x.bin"])", none = "\"" + field + R"(":[])";
    EXPECT_EQ(reason_with(some), "something that is no text") << field;
    EXPECT_EQ(reason(R"({"prompt":"u",)" + some + "}"), "something that is no text") << field;
    EXPECT_EQ(reason_with(none), "accepted") << field;
    EXPECT_EQ(reason(R"({"prompt":"u",)" + none + "}"), "accepted") << field;
  }
  EXPECT_EQ(reason(R"({"messages":[{"role":"user","content":[{"text":"x","image":"a.png"}]}]})"),
            "message content is not text");
  for (const char* odd : {"7", R"(["i"])", R"({"table":1})"}) {
    EXPECT_EQ(reason(std::string(R"({"instruction":"u","output":"a","input":)") + odd + "}"),
              "input is not text")
        << odd;
  }
  EXPECT_THAT(turns(R"({"instruction":"u","input":{},"output":"a"})"),
              ElementsAre("user=u", "assistant=a"));
}

// PREP-15, PREP-16: a table of Arrow gives every tool the fields of all others.
TEST(Rows, NullsOfArrowAreNoPartOfATool) {
  const auto tool = [](const std::string& parameters) {
    return R"([{"type":"function","function":{"name":"f","parameters":)" + parameters + "}}]";
  };
  const std::string arrow =
      tool(R"({"type":"object","properties":{"city":{"type":"string","enum":null,"default":null},)"
           R"("days":null,"default":null,"box":{"anyOf":[{"type":"null","items":null},null]}},)"
           R"("required":null})");
  EXPECT_EQ(tools_of(arrow).dump(),
            tool(R"({"type":"object","properties":{"city":{"type":"string"},)"
                 R"("box":{"anyOf":[{"type":"null"},null]}}})"));
  // A schema's own: the default is null.
  const std::string own =
      tool(R"({"type":"object","properties":{"unit":{"enum":["C",null],"default":null}}})");
  EXPECT_EQ(tools_of(own).dump(), own);
  EXPECT_EQ(tools_of(tool(R"({"properties":{"default":null,"a":{}}})")).dump(),
            tool(R"({"properties":{"a":{}}})"));
  // What a model said in a call is not touched.
  EXPECT_EQ(answer_with(R"("tool_calls":[{"name":"f","arguments":{"unit":null}}])")
                .more["tool_calls"][0]["function"]["arguments"]
                .dump(),
            R"({"unit":null})");
}

Row prompt(const std::string& json) {
  ParsedRow parsed = parse_prompt(OrderedJson::parse(json));
  if (const auto* rejected = std::get_if<Rejected>(&parsed)) {
    ADD_FAILURE() << json << ": " << rejected->reason;
    return {};
  }
  return std::get<Row>(std::move(parsed));
}

TEST(Prompts, EndBeforeTheAnswer) {
  const auto roles = [](const std::string& json) {
    std::string out;
    for (const auto& message : prompt(json).conversation.messages) {
      out += message.role + " ";
    }
    return out;
  };
  EXPECT_EQ(roles(R"({"prompt":"u","completion":"a"})"), "user ");
  EXPECT_EQ(roles(R"({"system":"s","conversations":[{"from":"human","value":"u"},
                      {"from":"gpt","value":"a"}]})"),
            "system user ");
  const std::string call = R"({"messages":[{"role":"user","content":"u"},
      {"role":"assistant","thinking":"r","tool_calls":[{"name":"f"}]})";
  EXPECT_EQ(roles(call + "]}"), "user ");
  EXPECT_EQ(roles(call + R"(,{"role":"tool","content":"3"}]})"), "user assistant tool ");
  EXPECT_EQ(roles(call + R"(,{"role":"tool","content":"3"},{"role":"assistant","content":"a"}]})"),
            "user assistant tool ");
}

TEST(Prompts, WhatIsNoneIsRejected) {
  for (const auto& [json, why] : std::map<std::string, std::string>{
           {R"({"prompt":7})", "prompt or response is not text"},
           {R"({"text":"t"})", "a text or ids, expected a prompt or messages"},
           {R"({"prompt_ids":[1],"answer_ids":[2]})",
            "a text or ids, expected a prompt or messages"},
           {R"({"prompt":"u","tools":7})", "tools that cannot be read"},
           {"[1]", "not a JSON object"}}) {
    const ParsedRow parsed = parse_prompt(OrderedJson::parse(json));
    const auto* rejected = std::get_if<Rejected>(&parsed);
    ASSERT_NE(rejected, nullptr) << json;
    EXPECT_EQ(rejected->reason, why) << json;
  }
}

}  // namespace
}  // namespace dflash::data
