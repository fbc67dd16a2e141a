// The answer in OpenAI's forms: one object, or the chunks of a stream. Ours beside them is
// `acceptance`: {"passes", "tau", "proposed", "accepted"} as base/acceptance.h defines them.
#pragma once

#include <string>

#include "serve/generation.h"

namespace dflash::serve {

class Reply {
 public:
  /// Both must outlive it.
  Reply(const Query& query, const Served& served);

  /// The whole answer; `all` has its pieces.
  Json whole(const Update& all) const;

  /// A stream: the role (chat), what each update adds (null: nothing), why it ended, the usage.
  Json first_chunk() const;
  Json chunk(const Update& update) const;
  Json last_chunk(const Update& update) const;
  Json usage_chunk(const Update& update) const;

 private:
  bool is_chat() const { return query_.endpoint == Endpoint::kChat; }
  Json envelope(bool streamed) const;
  Json choice(bool streamed, const std::string& text) const;
  Json usage(const Update& update) const;
  Json log_probs(const Update& update) const;
  Json scored_token(int64_t id, double log_prob) const;

  const Query& query_;
  const Served& served_;
  std::string id_;
  int64_t created_;
};

Json acceptance_json(const AcceptanceCounts& counts);
std::string text_of(const Update& update);

}  // namespace dflash::serve
