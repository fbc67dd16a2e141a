#include "jobs/prompts.h"

#include <map>

#include "data/questions.h"
#include "io/fingerprint.h"

namespace dflash::jobs {
namespace {

/// The id given, else a hash of what is said: a resumed run must know its prompts again, whatever
/// lines a file gained or lost.
std::string prompt_id(const data::Row& row) {
  if (!row.id.empty()) return row.id;
  io::Fingerprint hash("prompt");
  for (const auto& message : row.conversation.messages) {
    hash.add(message.role).add(message.content);
    if (!message.more.is_null()) hash.add(message.more.dump());
  }
  if (!row.conversation.tools.is_null()) hash.add("tools").add(row.conversation.tools.dump());
  return hash.hex();
}

}  // namespace

PromptFile read_prompts(const std::filesystem::path& path, int64_t limit) {
  PromptFile file;
  std::map<std::string, std::string> places;  // in the file, of the ids
  const auto take = [&](data::Row&& row, const OrderedJson& record,
                        const io::RecordPlace& place) -> std::optional<data::Rejected> {
    const OrderedJson* kind = data::field(record, "kind");
    if (kind && !kind->is_string()) return data::Rejected{"kind is not text", kind->type_name()};
    const std::string id = prompt_id(row);
    const auto [first, fresh] = places.emplace(id, place.in_file());
    if (!fresh && row.id.empty()) return data::Rejected{"said before in the file", first->second};
    // Raw ShareGPT has such records. Answers are known by their id, so the first alone can have it.
    if (!fresh) return data::Rejected{"the id of an earlier record", id + ", " + first->second};
    file.prompts.push_back({id, kind ? kind->get<std::string>() : std::string(),
                            std::move(row.conversation), place.str()});
    return std::nullopt;
  };
  file.left_out = data::read_questions(path, limit, take);
  return file;
}

EncodedPrompt encode_prompt(const Model& model, const Prompt& prompt) {
  EncodedPrompt out = text::encode_whole_prompt(*model.tokenizer, model.chat, prompt.conversation);
  if (!out.refused.empty()) return out;
  const int64_t longest = model.target->config().max_positions;
  const auto length = static_cast<int64_t>(out.ids.size());
  if (length > longest) {
    return {.refused = "longer than the context",
            .detail = fmt::format("{} tokens, the context has {}", length, longest)};
  }
  return out;
}

}  // namespace dflash::jobs
