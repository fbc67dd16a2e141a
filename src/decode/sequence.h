// One request while it lives in a slot of the engine: its ids, its target state, and what the next
// pass does for it. Between passes the state holds the prompt's rows so far, and once the prompt is
// done every id but the last one (the anchor): rows kept always equal tokens committed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "decode/choices.h"
#include "decode/engine.h"
#include "decode/proposal.h"

namespace dflash::decode {

/// The rows of one sequence in one pass.
struct PassPart {
  int64_t slot = 0;
  int64_t first_row = 0, num_rows = 0;
  int64_t first_position = 0;
  int64_t keep = 0;          // rows that survive; known after Sequence::take
  std::vector<int64_t> way;  // of a tree: these, counted from the first row; else the first `keep`
  bool prefill = false;      // prompt rows; else [anchor, drafts]
  bool chooses = false;      // a verification, or the last rows of a prompt
};

class Sequence {
 public:
  /// `state` holds the first rows of the prompt already, at most all but the last.
  Sequence(size_t request_index, const Request& request, const target::Target& target,
           std::unique_ptr<target::State> state, Result& result);

  bool in_prefill() const { return state_->length() < num_prompt_; }
  /// Not only the likeliest id of each row.
  bool needs_logits() const {
    return request_.sampling.temperature != 0.0 || request_.num_top_log_probs;
  }
  /// Draft tokens that the next pass can use: the bonus token takes one of the budget, and no row
  /// may stand past the context's end.
  int64_t room() const;
  /// Keeps what can be fed, at most `room` deep.
  void set_drafts(const Proposal& proposal, int64_t room);

  /// The next pass's rows: at most `prefill_rows` of the prompt, or the anchor and the drafts.
  PassPart plan(int64_t prefill_rows) const;
  void append_rows(const PassPart& part, std::vector<int64_t>& ids_R,
                   std::vector<int64_t>& pos_R) const;
  /// As target::Segment wants them; empty: a chain.
  std::span<const int64_t> row_parents(const PassPart& part) const {
    return part.prefill ? std::span<const int64_t>() : drafts_.parents();
  }

  /// Takes the target's choices, row by row, until one differs from the draft after it or ends the
  /// text. Sets part.keep and keeps these rows of the state. Empty commit: prompt not done yet.
  Commit take(PassPart& part, const Choices& choices);

  bool finished() const { return finished_; }
  size_t request_index() const { return request_index_; }
  std::span<const int64_t> ids() const { return ids_; }
  const Result& result() const { return result_; }
  target::State* state() const { return state_.get(); }
  /// Its committed rows; the sequence is over.
  std::unique_ptr<target::State> take_state() { return std::move(state_); }

 private:
  int64_t commit_token(int64_t row, int64_t position, const Choices& choices, Commit& commit);
  void push(int64_t token);
  void verify(PassPart& part, const Choices& choices, Commit& commit);

  size_t request_index_;
  const Request& request_;
  Result& result_;
  std::unique_ptr<target::State> state_;
  int64_t num_prompt_, max_positions_;
  int64_t vocab_size_;
  bool takes_trees_;
  std::vector<int64_t> ids_;
  DraftTree drafts_;
  bool finished_ = false;
};

}  // namespace dflash::decode
