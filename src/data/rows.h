// One JSON record of a training or prompt file -> what it says. The shapes that are read, by the
// first of these fields that is there:
//   prompt_ids + answer_ids               exact ids, as `regenerate` writes them
//   messages       [{role, content}]      conversations [{from, value}]
//   prompt + response|completion          instruction + output|response
//   text                                  plain text
// All but the first and last may have `tools` (or `functions`) and `system` (or `system_prompt`), a
// question also its `input` (or `context`) and the turns before it (`history`, [[question, answer],
// ...]). Two such fields that say different things are no choice of ours: rejected. A turn may
// bring reasoning and tool calls; whether the model's template shows them is the caller's question.
// `weight` 0 or `train` false, of the record or a turn, rejects it: its author's wish.
// A record with something that we cannot read is rejected whole (PREP-02, PREP-04), never cut.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "data/fields.h"
#include "text/chat.h"

namespace dflash::data {

struct Row {
  enum class Kind { kChat, kExactIds, kPlainText };
  Kind kind = Kind::kChat;
  std::string id;                               // the record's own "id"; empty: none
  text::Conversation conversation;              // kChat: system?, developer?, user, assistant, ...
  std::vector<int64_t> prompt_ids, answer_ids;  // kExactIds
  std::string text;                             // kPlainText
};

using ParsedRow = std::variant<Row, Rejected>;

/// A record whose keys stand in the order of the file: that of a tool's parameters lands in the
/// prompt (PREP-16).
ParsedRow parse_row(const OrderedJson& record);

/// One message of a conversation, for who has its own rules of what may follow what.
std::variant<text::Message, Rejected> parse_message(const OrderedJson& turn);

/// The same as a question: a conversation that ends with the user's or a tool's message. An answer
/// at its end is left out, the target writes its own.
ParsedRow parse_prompt(const OrderedJson& record);

}  // namespace dflash::data
