// Chat text and supervision against jinja2's rendering of the same templates, and the recipes of
// preparing data that concern rendering.
#include "text/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/support.h"

namespace dflash::text {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

/// A tokenizer that has nothing but a template and end tokens: rendering needs no more.
class TemplateOnly final : public Tokenizer {
 public:
  explicit TemplateOnly(std::string text, std::vector<std::string> ends = {"<|im_end|>"})
      : template_(std::move(text)), ends_(std::move(ends)) {
    for (size_t i = 0; i < ends_.size(); ++i) stops_.push_back(static_cast<int64_t>(i));
  }
  Ids encode(std::string_view, Specials) const override { return {}; }
  EncodedText encode_with_offsets(std::string_view, Specials) const override { return {}; }
  std::string decode(const Ids&, bool) const override { return {}; }
  std::string token_bytes(int64_t id) const override { return ends_[static_cast<size_t>(id)]; }
  std::optional<int64_t> token_to_id(std::string_view) const override { return std::nullopt; }
  bool is_special(int64_t) const override { return false; }
  int64_t size() const override { return 0; }
  const Ids& stop_ids() const override { return stops_; }
  std::optional<int64_t> bos_id() const override { return std::nullopt; }
  const std::string& chat_template() const override { return template_; }
  std::string fingerprint() const override { return {}; }

 private:
  std::string template_;
  std::vector<std::string> ends_;
  Ids stops_;
};

ChatTemplate template_of(const std::string& text) {
  return ChatTemplate::for_tokenizer(TemplateOnly(text));
}

const Json& reference() {
  static const Json json = read_json(golden("chat.json"));
  return json;
}

std::vector<Message> messages_of(const Json& json) {
  std::vector<Message> messages;
  for (const Json& m : json) messages.push_back({m.at("role"), m.at("content")});
  return messages;
}

std::string text_of(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

std::vector<std::string> supervised_of(const std::vector<Segment>& segments) {
  std::vector<std::string> texts;
  for (const Segment& segment : segments) {
    if (segment.supervised) texts.push_back(segment.text);
  }
  return texts;
}

TEST(Chat, TextEqualsJinja) {
  for (const std::string name : {"smollm2", "plain"}) {
    const ChatTemplate chat = template_of(reference().at(name));
    for (const Json& want : reference().at("cases")) {
      const auto messages = messages_of(want.at("messages"));
      EXPECT_EQ(text_of(chat.render(messages, false)), want.at(name).get<std::string>());
      EXPECT_EQ(text_of(chat.render(messages, true)), want.at(name + "_prompt").get<std::string>());
    }
  }
}

TEST(Chat, IdsEqualTheReferenceOfTheRenderedText) {
  const auto tokenizer = smollm2();
  SKIP_WITHOUT_SMOLLM2(tokenizer);
  const ChatTemplate chat = ChatTemplate::for_tokenizer(*tokenizer);
  EXPECT_EQ(chat.name(), "chatml");
  for (const Json& want : reference().at("cases")) {
    const auto messages = messages_of(want.at("messages"));
    const Encoded whole = encode_segments(*tokenizer, chat.render(messages, false));
    EXPECT_THAT(whole.ids, ElementsAreArray(want.at("smollm2_ids").get<Ids>()));
    EXPECT_EQ(whole.loss_mask.size(), whole.ids.size());
    EXPECT_THAT(encode_prompt(*tokenizer, chat, {messages}),
                ElementsAreArray(want.at("smollm2_prompt_ids").get<Ids>()));
  }
}

std::string random_content(uint64_t seed, uint64_t turn) {
  static const std::vector<std::string> pieces = {"\n",
                                                  "\n\n",
                                                  " ",
                                                  "  ",
                                                  "hello",
                                                  " world",
                                                  "<|im_end|>",
                                                  "<|im_start|>",
                                                  "e\xCC\x81",
                                                  "12",
                                                  "\r\n",
                                                  "\xE6\x97\xA5",
                                                  "\xF0\x9F\x98\x80",
                                                  "'s",
                                                  "<think>",
                                                  "</think>",
                                                  "\xFF",
                                                  "assistant"};
  std::string text;
  const uint64_t count = uniform_below(6, {seed, turn});
  for (uint64_t i = 0; i < count; ++i) {
    text += pieces[uniform_below(pieces.size(), {seed, turn, i, 1})];
  }
  return text;
}

// The mask may never change the ids (PREP-07, PREP-08); every token belongs to the segment of its
// first byte.
void expect_segments_change_nothing(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<Message> messages;
    for (uint64_t turn = 0; turn <= uniform_below(5, {seed}); ++turn) {
      messages.push_back({turn % 2 == 0 ? "user" : "assistant", random_content(seed, turn)});
    }
    const auto segments = chat.render(messages, seed % 2 == 0);
    const std::string text = text_of(segments);
    const Encoded encoded = encode_segments(tokenizer, segments);
    ASSERT_EQ(encoded.ids, tokenizer.encode(text)) << seed;
    std::string byte_mask;
    for (const Segment& s : segments) byte_mask.append(s.text.size(), s.supervised ? 1 : 0);
    const EncodedText places = tokenizer.encode_with_offsets(text);
    for (size_t i = 0; i < encoded.ids.size(); ++i) {
      ASSERT_EQ(encoded.loss_mask[i], byte_mask[static_cast<size_t>(places.begins[i])]) << seed;
    }
  }
}

TEST(Chat, SegmentsNeverChangeIds) {
  for (const char* name : {"mini_smollm", "mini_qwen2", "mini_llama3"}) {
    const auto tokenizer = Tokenizer::from_folder(golden(name));
    expect_segments_change_nothing(*tokenizer, template_of(reference().at("smollm2")));
  }
}

TEST(Chat, SegmentsNeverChangeIdsOfSmolLm2) {
  const auto tokenizer = smollm2();
  SKIP_WITHOUT_SMOLLM2(tokenizer);
  expect_segments_change_nothing(*tokenizer, ChatTemplate::for_tokenizer(*tokenizer));
}

/// The recipes' tokenizer: every word one token. S user N hi E assistant ok = 3..9.
std::shared_ptr<const Tokenizer> word_tokenizer() {
  Json added = Json::array();
  int64_t id = 3;
  for (const char* word : {"<|im_start|>", "user", "\n", "hi", "<|im_end|>", "assistant", "ok"}) {
    added.push_back({{"id", id++}, {"content", word}, {"special", *word == '<'}});
  }
  const Json model = {
      {"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}};
  return TempFolder().put("tokenizer.json", {{"model", model}, {"added_tokens", added}}).load();
}

// R-PREP-1
TEST(Chat, EmptyAnswerSupervisesItsEndOnly) {
  const auto chat = template_of(reference().at("plain"));
  const Encoded got =
      encode_segments(*word_tokenizer(), chat.render({{"user", "hi"}, {"assistant", ""}}, false));
  EXPECT_THAT(got.ids, ElementsAre(3, 4, 5, 6, 7, 5, 3, 8, 5, 7, 5));
  EXPECT_THAT(got.loss_mask, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0));
}

// R-PREP-2
TEST(Chat, AnswerAndItsEndAreSupervised) {
  const auto chat = template_of(reference().at("plain"));
  const Encoded got =
      encode_segments(*word_tokenizer(), chat.render({{"user", "hi"}, {"assistant", "ok"}}, false));
  EXPECT_THAT(got.ids, ElementsAre(3, 4, 5, 6, 7, 5, 3, 8, 5, 9, 7, 5));
  EXPECT_THAT(got.loss_mask, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0));
}

TEST(Chat, GenerationPromptIsNotSupervised) {
  const auto chat = template_of(reference().at("plain"));
  const auto segments = chat.render({{"user", "hi"}}, true);
  EXPECT_TRUE(supervised_of(segments).empty());
  EXPECT_TRUE(text_of(segments).ends_with("<|im_start|>assistant\n"));
}

// R-PREP-4: this family only appends, so old reasoning stays in one row and every answer counts.
// What the model saw before an answer is the beginning of the whole.
TEST(Chat, RenderingOnlyAppends) {
  const auto chat = template_of(reference().at("smollm2"));
  const std::vector<Message> messages = {
      {"user", "u1"}, {"assistant", "<think> r </think> x"}, {"user", "u2"}, {"assistant", "y"}};
  const auto segments = chat.render(messages, false);
  EXPECT_THAT(supervised_of(segments),
              ElementsAre("<think> r </think> x<|im_end|>", "y<|im_end|>"));
  const std::string whole = text_of(segments);
  for (size_t turns = 1; turns < messages.size(); turns += 2) {
    const std::vector<Message> prefix(messages.begin(),
                                      messages.begin() + static_cast<long>(turns));
    EXPECT_TRUE(whole.starts_with(text_of(chat.render(prefix, true)))) << turns;
  }
}

TEST(Chat, EscapedLineBreaksAndFlagDefaultAreTheSameTemplate) {
  std::string escaped = reference().at("smollm2");
  for (size_t at = escaped.find('\n'); at != std::string::npos; at = escaped.find('\n')) {
    escaped.replace(at, 1, "\\n");
  }
  const std::string flag =
      "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
      "{% endif %}";
  const std::vector<Message> hi = {{"user", "hi"}};
  const std::string want = text_of(template_of(reference().at("smollm2")).render(hi, true));
  EXPECT_EQ(text_of(template_of(flag + escaped + "\n").render(hi, true)), want);
}

TEST(Chat, TemplatesThatNeedMoreAreNamed) {
  EXPECT_THAT(error_of([] { template_of(""); }), HasSubstr("bring none"));
  EXPECT_THAT(error_of([] { template_of("\n{% include 'a' %}"); }),
              HasSubstr("line 2: tag 'include' is not supported"));
  const auto chat = template_of("{{ messages | wordwrap }}");
  EXPECT_THAT(error_of([&] { chat.render({{"user", "a"}}, true); }), HasSubstr("'wordwrap'"));
}

TEST(Chat, BadConversationsAreErrors) {
  const auto chat = template_of(reference().at("plain"));
  const auto render = [&](const std::vector<Message>& messages) {
    return error_of([&] { chat.render(messages, false); });
  };
  EXPECT_THAT(render({}), HasSubstr("no messages"));
  EXPECT_THAT(render({{"user", "a"}, {"laguna_s", "b"}}), HasSubstr("'laguna_s'"));
  EXPECT_THAT(render({Message{"assistant", "a"}}), HasSubstr("begins with the assistant"));
  EXPECT_THAT(render({{"system", "s"}, {"assistant", "a"}}),
              HasSubstr("begins with the assistant"));
}

}  // namespace
}  // namespace dflash::text
