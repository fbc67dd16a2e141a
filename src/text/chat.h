// Conversations -> text segments with supervision, by the model's own chat template. The template
// is run as transformers runs it; where the model's own text lies in it is found by rendering,
// never by patterns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

namespace dflash::text {

struct Message {
  std::string role;  // "system", "developer", "user", "assistant", "tool"
  std::string content;
  /// Further fields of the message in their order, an object: reasoning_content (also spelt
  /// reasoning or thinking), tool_calls, name, tool_call_id. A `content` here, such as a list of
  /// parts, takes the place of the text.
  OrderedJson more = nullptr;
};

struct Conversation {
  std::vector<Message> messages = {};
  OrderedJson tools = nullptr;  // list of {"type": "function", "function": {...}}; null: none
};

/// A piece of rendered text. `supervised`: the model itself would generate it.
struct Segment {
  std::string text;
  bool supervised = false;
};

/// Token ids of a conversation with the mask of what the target wrote.
struct Encoded {
  std::vector<int64_t> ids;
  std::vector<uint8_t> loss_mask;
};

/// What a template can be told beside the messages.
struct ChatOptions {
  std::optional<bool> enable_thinking;            // unset: the template's own default; an Error
                                                  // with a template that knows no such switch
  OrderedJson variables = OrderedJson::object();  // further variables, such as date_string
  std::optional<int64_t> now_seconds;             // strftime_now's Unix time; unset: load time
};

class ChatTemplate {
 public:
  /// Error when the files bring no template, or one that needs more than text/jinja offers, or that
  /// does not know what the options set.
  static ChatTemplate for_tokenizer(const Tokenizer& tokenizer, ChatOptions options = {});

  /// Stands in where there is no known template and none may be needed: rendering throws `why`.
  static ChatTemplate refusing(std::string why);

  /// The rendering. `generation_prompt` appends the opened assistant turn. Error: unknown role,
  /// empty conversation, assistant first, or the template refuses.
  std::string text(const Conversation& conversation, bool generation_prompt) const;

  /// As many rows as it takes for every answer to follow exactly the text that serving would put
  /// before it: one row, unless the template rewrites earlier turns (Qwen3 drops old reasoning).
  /// Each answer is supervised in one row, up to its end token; what the generation prompt brings
  /// is not (PREP-09, PREP-10). Error: as text, or an answer does not begin with its prompt.
  std::vector<std::vector<Segment>> training_rows(const Conversation& conversation) const;

  /// The conversation's only row; for a generation prompt, the unsupervised text. Error: as
  /// training_rows, or it takes more than one row.
  std::vector<Segment> render(const std::vector<Message>& messages, bool generation_prompt) const;

  /// Whether some conversation is put otherwise with thinking on than off.
  bool knows_thinking() const;

  /// Family by its markers, and the thinking mode where it was set.
  const std::string& name() const { return name_; }

 private:
  struct Turn;
  std::vector<Turn> answers_of(const Conversation& conversation) const;
  size_t answer_end(std::string_view answer) const;
  std::vector<Segment> tagged_row(const Conversation& conversation, const std::string& why) const;
  jinja::Rendered run(const Conversation& conversation, bool generation_prompt) const;

  std::string name_;
  std::string why_not_;  // not empty: every rendering is refused with this
  std::shared_ptr<const jinja::Jinja> template_;
  OrderedJson variables_;
  int64_t now_seconds_ = 0;
  std::vector<std::string> ends_;  // texts of the tokens that end an answer
};

/// Tokenises the concatenation once; a token is supervised iff its first byte lies in a supervised
/// segment. Markers inside message text are parsed too, as the reference renderers do.
Encoded encode_segments(const Tokenizer& tokenizer, const std::vector<Segment>& segments);

/// Prompt ids ready for generation: text + encode. What the template does not show of it is left
/// out; text/prompt.h refuses such a conversation.
std::vector<int64_t> encode_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                   const Conversation& conversation);

}  // namespace dflash::text
