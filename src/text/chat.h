// Conversations -> text segments with supervision, by the model's chat template. Now: the
// ChatML/SmolLM2 template; any other template is an Error that names what is supported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace dflash::text {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
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

class ChatTemplate {
 public:
  /// Error when the tokenizer's template is not one we know.
  static ChatTemplate for_tokenizer(const Tokenizer& tokenizer);

  /// Stands in where there is no known template and none may be needed: render throws `why`.
  static ChatTemplate refusing(std::string why);

  /// Whole conversation. `generation_prompt` appends the opened assistant turn. Error: unknown
  /// role, empty conversation, assistant first.
  std::vector<Segment> render(const std::vector<Message>& messages, bool generation_prompt) const;

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string why_not_;  // not empty: every rendering is refused with this
  std::string default_system_;
  bool has_default_system_ = false;
};

/// Tokenises the concatenation once; a token is supervised iff its first byte lies in a supervised
/// segment. Markers inside message text are parsed too, as the reference renderers do.
Encoded encode_segments(const Tokenizer& tokenizer, const std::vector<Segment>& segments);

/// Prompt ids ready for generation: render + encode.
std::vector<int64_t> encode_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                   const std::vector<Message>& messages);

}  // namespace dflash::text
