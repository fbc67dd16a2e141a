// Supervision by any template: what the model writes is found by rendering, and every answer is
// trained after exactly the text that serving would put before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/paths.h"
#include "text/chat.h"
#include "text/support.h"

namespace dflash::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Rows = std::vector<std::vector<Segment>>;

/// A folder's tokenizer with this template; "</s>" ends an answer, "<s>" begins a text.
std::shared_ptr<const Tokenizer> tokenizer_with(const std::string& chat_template) {
  const Json model = {
      {"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}};
  const Json added = {{{"id", 3}, {"content", "<s>"}, {"special", true}},
                      {{"id", 4}, {"content", "</s>"}, {"special", true}}};
  TempFolder folder;
  folder.put("tokenizer.json", {{"model", model}, {"added_tokens", added}});
  folder.put("tokenizer_config.json",
             {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", chat_template}});
  return folder.load();
}

ChatTemplate chat_with(const std::string& chat_template, ChatOptions options = {}) {
  return ChatTemplate::for_tokenizer(*tokenizer_with(chat_template), std::move(options));
}

const OrderedJson& families() {
  static const OrderedJson json =
      OrderedJson::parse(read_text(tree::root() / "tests/golden/jinja/families.json"));
  return json;
}

std::string family(const std::string& name) {
  return families().at("families").at(name).at("template");
}

Conversation conversation_of(const OrderedJson& messages) {
  Conversation out;
  for (const OrderedJson& message : messages) {
    const OrderedJson& content = message.at("content");
    out.messages.push_back({message.at("role").get<std::string>(),
                            content.is_string() ? content.get<std::string>() : std::string(),
                            message});
  }
  return out;
}

std::string text_of(const std::vector<Segment>& row) {
  std::string text;
  for (const Segment& segment : row) text += segment.text;
  return text;
}

std::vector<std::string> supervised_of(const std::vector<Segment>& row) {
  std::vector<std::string> texts;
  for (const Segment& segment : row) {
    if (segment.supervised) texts.push_back(segment.text);
  }
  return texts;
}

Message answer(const std::string& text, const std::string& reasoning) {
  return {"assistant", text, {{"reasoning_content", reasoning}}};
}

// R-PREP-4, PREP-09: old reasoning is dropped, so each answer has a row with its own history.
TEST(ChatRows, RewritingTemplatesGiveARowAnAnswer) {
  const auto chat = chat_with(family("strip_old_reasoning"));
  const Conversation talk = {
      {{"user", "u1"}, {"assistant", "<think> r </think> x"}, {"user", "u2"}, {"assistant", "y"}}};
  const Rows rows = chat.training_rows(talk);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(supervised_of(rows[0]), ElementsAre("<think>\n r \n</think>\n\n x</s>"));
  EXPECT_THAT(supervised_of(rows[1]), ElementsAre("<think>\n\n</think>\n\ny</s>"));
  EXPECT_THAT(text_of(rows[1]), Not(HasSubstr(" r ")));
  EXPECT_THAT(error_of([&] { chat.render(talk.messages, false); }), HasSubstr("2 rows"));
}

// Within a tool loop nothing is dropped: one row has all its answers.
TEST(ChatRows, AnswersOfAToolLoopShareARow) {
  const auto chat = chat_with(family("strip_old_reasoning"));
  const Conversation talk = {{{"user", "u1"},
                              answer("a", "r1"),
                              {"tool", "t1"},
                              {"tool", "t2"},
                              answer("b", "r2"),
                              {"user", "u2"},
                              answer("c", "r3")}};
  const Rows rows = chat.training_rows(talk);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(supervised_of(rows[0]),
              ElementsAre("<think>\nr1\n</think>\n\na</s>", "<think>\nr2\n</think>\n\nb</s>"));
  // PREP-08: neighbouring tool turns become one
  EXPECT_THAT(text_of(rows[0]), HasSubstr("<s>user\n<tool_response>\nt1\n</tool_response>\n"
                                          "<tool_response>\nt2\n</tool_response></s>"));
  EXPECT_THAT(supervised_of(rows[1]), ElementsAre("<think>\nr3\n</think>\n\nc</s>"));
}

// PREP-10: what the generation prompt brings is not the model's.
TEST(ChatRows, GenerationPromptsAreNotSupervised) {
  ChatOptions quiet;
  quiet.enable_thinking = false;
  const auto chat = chat_with(family("strip_old_reasoning"), quiet);
  EXPECT_EQ(chat.name(), "custom, no thinking");
  const Rows rows = chat.training_rows({{{"user", "u"}, {"assistant", "y"}}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(supervised_of(rows[0]), ElementsAre("y</s>"));
  EXPECT_THAT(rows[0][0].text, HasSubstr("<think>\n\n</think>\n\n"));
  const auto prompt = chat.render({{"user", "u"}}, true);
  EXPECT_THAT(supervised_of(prompt), IsEmpty());
  EXPECT_TRUE(text_of(prompt).ends_with("<think>\n\n</think>\n\n"));
}

ChatOptions thinking(bool on) {
  ChatOptions options;
  options.enable_thinking = on;
  return options;
}

// Wherever a template may use the switch: the opened answer, the system prompt, earlier reasoning.
TEST(ChatRows, AThinkingSwitchThatIsNotKnownIsAnError) {
  const std::string turns =
      "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}";
  const std::string none = turns + "{% if add_generation_prompt %}<s>assistant\n{% endif %}";
  EXPECT_FALSE(chat_with(none).knows_thinking());
  EXPECT_FALSE(chat_with(none + "{# enable_thinking #}").knows_thinking()) << "named, not used";
  for (const std::string& known :
       {family("strip_old_reasoning"),
        none + "{% if enable_thinking is defined and not enable_thinking %}<think>{% endif %}",
        "{% if messages[0].role == 'system' and enable_thinking %}/think{% endif %}" + none,
        "{% for m in messages if m.reasoning_content and enable_thinking %}{{ m.reasoning_content "
        "}}"
        "{% endfor %}" +
            none,
        "{% if enable_thinking %}{{ raise_exception('cannot') }}{% endif %}" + none}) {
    EXPECT_TRUE(chat_with(known).knows_thinking()) << known;
    EXPECT_NO_THROW(chat_with(known, thinking(true)));
  }
  for (const bool on : {true, false}) {
    const std::string message = error_of([&] { chat_with(none, thinking(on)); });
    EXPECT_THAT(message, AllOf(HasSubstr("tokenizer_config.json: expected one with a thinking"),
                               HasSubstr("hint: leave --thinking out")));
  }
  EXPECT_NO_THROW(chat_with(none));
}

// An answer that does not begin as its prompt does: an error that shows both, or the template's own
// word for what the model writes.
TEST(ChatRows, AnswersThatDoNotBeginWithTheirPrompt) {
  const std::string opens_thinking =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}TAG"
      "{{ m.content }}</s>END{% else %}{{ m.content }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>{% endif %}";
  const auto with = [&](const char* open, const char* close) {
    std::string text = opens_thinking;
    text.replace(text.find("TAG"), 3, open);
    text.replace(text.find("END"), 3, close);
    return text;
  };
  const Conversation talk = {{{"user", "u"}, {"assistant", "y"}}};
  const std::string message = error_of([&] { chat_with(with("", "")).training_rows(talk); });
  EXPECT_THAT(message, AllOf(HasSubstr("message 1"), HasSubstr("'<think>'"), HasSubstr("'y</s>'")));
  const auto tagged = chat_with(with("{% generation %}", "{% endgeneration %}"));
  const Rows rows = tagged.training_rows(talk);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(supervised_of(rows[0]), ElementsAre("y</s>"));
  EXPECT_EQ(text_of(rows[0]), "<user>u<assistant>y</s>");
}

// What the tags enclose in an earlier turn need not be what the model wrote there.
TEST(ChatRows, TagsDoNotStandForAnswersThatWereRewritten) {
  const auto tagged = chat_with(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content if loop.last else m.content | upper }}</s>{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>{% endif %}");
  const Conversation one = {{{"user", "u"}, {"assistant", "y"}}};
  EXPECT_EQ(tagged.training_rows(one).size(), 1U);
  Conversation two = one;
  two.messages.insert(two.messages.end(), one.messages.begin(), one.messages.end());
  EXPECT_THAT(error_of([&] { tagged.training_rows(two); }), HasSubstr("cannot be supervised"));
}

TEST(ChatRows, TheAnswerEndsAtItsLastEndToken) {
  const auto chat = chat_with(family("generation_tags"));
  const Rows rows = chat.training_rows(
      {{{"user", "u"}, {"assistant", "a </s> b"}, {"user", "v"}, {"assistant", ""}}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(supervised_of(rows[0]), ElementsAre("a </s> b</s>", "</s>"));
  EXPECT_EQ(text_of(rows[0]), "<s><U>u<A>a </s> b</s><U>v<A></s>");
}

// R-PREP-9, PREP-12, PREP-13: reasoning by any of its names, the first that is there, empty or not.
TEST(ChatRows, ReasoningHasThreeNames) {
  const auto chat = chat_with(
      "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }};"
      "{% endfor %}");
  const auto text = [&](OrderedJson more) {
    return chat.text({{{"user", "u"}, {"assistant", "a", std::move(more)}}}, false);
  };
  EXPECT_EQ(text({{"reasoning", "z"}}), "|;z|z;");
  EXPECT_EQ(text({{"thinking", "t"}, {"reasoning", "z"}}), "|;t|t;");
  EXPECT_EQ(text({{"reasoning_content", ""}, {"reasoning", "z"}}), "|;|;");
  EXPECT_EQ(text({{"reasoning_content", nullptr}, {"reasoning", "z"}}), "|;z|z;");
}

TEST(ChatRows, TemplatesSeeToolsTokensVariablesAndTime) {
  ChatOptions options;
  options.variables = {{"date_string", "today"}};
  options.now_seconds = 20000000;
  const auto chat = chat_with(
      "{{ bos_token }}{{ date_string }}{{ strftime_now('%Y') }}{{ tools | tojson }}"
      "{{ documents is none }}{{ enable_thinking is defined }}{{ pad_token is defined }}",
      options);
  Conversation talk = {{{"user", "u"}}};
  EXPECT_EQ(chat.text(talk, true), "<s>today1970nullTrueFalseFalse");
  talk.tools = OrderedJson::parse(R"([{"type": "function", "function": {"b": 1, "a": [true]}}])");
  EXPECT_THAT(chat.text(talk, true),
              HasSubstr(R"([{"type": "function", "function": {"b": 1, "a": [true]}}])"));
}

// The rule itself, over the corpus: before every supervised stretch stands the prompt that serving
// would use, and every answer is supervised once.
TEST(ChatRows, EveryAnswerFollowsItsPrompt) {
  for (const char* name : {"strip_old_reasoning", "generation_tags"}) {
    const auto chat = chat_with(family(name));
    for (const OrderedJson& messages : families().at("conversations")) {
      if (messages[0].at("role") == "assistant") continue;
      const Conversation talk = conversation_of(messages);
      std::vector<std::string> prompts;
      Conversation part;
      for (const Message& message : talk.messages) {
        if (message.role == "assistant") prompts.push_back(chat.text(part, true));
        part.messages.push_back(message);
      }
      size_t supervised = 0;
      for (const auto& row : chat.training_rows(talk)) {
        std::string before;
        for (const Segment& segment : row) {
          if (segment.supervised) {
            EXPECT_THAT(prompts, ::testing::Contains(before)) << messages.dump();
            EXPECT_TRUE(segment.text.ends_with("</s>")) << segment.text;
            ++supervised;
          }
          before += segment.text;
        }
      }
      EXPECT_EQ(supervised, prompts.size()) << name << messages.dump();
    }
  }
}

}  // namespace
}  // namespace dflash::text
