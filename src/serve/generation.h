// One request while it is answered. The engine's thread puts in what passes commit, the client's
// thread takes out text; whoever comes last destroys it. Nothing here names a slot: what belongs to
// a request is reached through the request (SV-05).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/acceptance.h"
#include "serve/answer_text.h"
#include "serve/api.h"

namespace dflash::serve {

/// A token with what the target thought of it.
struct ScoredToken {
  int64_t id = 0;
  decode::TokenLogProbs log_probs;
};

enum class Ending { kNone, kStop, kLength, kCancelled, kFailed };

/// What a client is told next; several passes make one when it takes its time.
struct Update {
  std::vector<Piece> pieces = {};
  std::vector<ScoredToken> scored = {};  // where the request asks for log-probabilities
  Ending ending = Ending::kNone;         // kNone: there is more to come
  std::string error = {};                // kFailed
  // Of the whole answer so far.
  int64_t num_tokens = 0;  // the end token and those of a stop text included
  int64_t reused_tokens = 0;
  AcceptanceCounts counts = {};

  bool is_news() const { return !pieces.empty() || !scored.empty() || ending != Ending::kNone; }
};

class Generation {
 public:
  /// `tokenizer` must outlive it.
  Generation(Query query, const text::Tokenizer& tokenizer)
      : query_(std::move(query)), text_(tokenizer, query_.stops) {}

  const Query& query() const { return query_; }

  /// The next news; nullopt when there is none for so long. Any one thread.
  std::optional<Update> wait(std::chrono::milliseconds longest);

  // --- the engine's thread ---
  /// The request for a new engine: the prompt, what was committed already, the rest of the budget.
  const decode::Request& submission();
  decode::Result& result() { return result_; }
  /// True: a stop text is complete, the engine may forget the request.
  bool commit(const decode::Commit& commit);
  /// What it has come to where it needs no further token, whoever noticed; kNone: it goes on.
  Ending reached() const;
  void end(Ending ending, const std::string& error = {});
  const AcceptanceCounts& counts() const { return news_.counts; }
  int64_t num_tokens() const { return news_.num_tokens; }
  int64_t reused_tokens() const { return news_.reused_tokens; }

 private:
  Query query_;

  bool is_end(int64_t id) const;

  // The engine's thread alone.
  decode::Request submission_;
  decode::Result result_;
  AnswerText text_;
  std::vector<int64_t> tokens_;
  bool first_commit_ = true;  // the prefill's: no pass of its own
  bool stopped_ = false;      // by a stop text

  std::mutex mutex_;
  std::condition_variable changed_;
  Update news_;  // written by the engine's thread under the mutex
};

}  // namespace dflash::serve
