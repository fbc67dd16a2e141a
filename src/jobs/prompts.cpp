#include "jobs/prompts.h"

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "data/rows.h"
#include "io/fingerprint.h"
#include "io/records.h"

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

std::string kind_of(const OrderedJson& record) {
  const OrderedJson* kind = data::field(record, "kind");
  if (!kind) return "";
  if (!kind->is_string()) fail("kind: expected text, got {}", kind->type_name());
  return kind->get<std::string>();
}

}  // namespace

PromptFile read_prompts(const std::filesystem::path& path, int64_t limit) {
  PromptFile file;
  auto& prompts = file.prompts;
  std::map<std::string, std::string> places;  // in the file, of the ids
  const auto counts = io::read_records(path, {}, [&](const auto& place, const auto& record) {
    if (limit > 0 && static_cast<int64_t>(prompts.size()) >= limit) return;
    const std::string where = place.str();
    bool given = false;  // its id, not hashed
    try {
      data::Row row = data::parse_prompt(record);
      given = !row.id.empty();
      prompts.push_back({prompt_id(row), kind_of(record), std::move(row.conversation), where});
    } catch (const std::exception& e) {
      fail("not a prompt: {}: {}", where, e.what());
    }
    const auto [first, fresh] = places.emplace(prompts.back().id, place.in_file());
    if (fresh) return;
    if (given) {
      fail("two prompts with one id: {}: {} is the id of {} too", where, first->first,
           first->second);
    }
    prompts.pop_back();
    file.repeated += 1;
  });
  if (prompts.empty()) fail("no prompt in {}", path.string());
  if (file.repeated > 0) {
    log_warning("{}: {} prompt{} said before in the file and left out", path.string(),
                file.repeated, file.repeated == 1 ? " is" : "s are");
  }
  if (!counts.cut_off.empty()) {
    file.cut_off = 1;
    log_warning("{}: {}; it is left out; is the file whole?", path.string(), counts.cut_off);
  }
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
