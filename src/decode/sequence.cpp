#include "decode/sequence.h"

#include "base/error.h"

namespace dflash::decode {

Sequence::Sequence(size_t request_index, const Request& request, const target::Target& target,
                   std::unique_ptr<target::State> state, Result& result)
    : request_index_(request_index),
      request_(request),
      result_(result),
      state_(std::move(state)),
      num_prompt_(static_cast<int64_t>(request.prompt.size())),
      max_positions_(target.config().max_positions),
      vocab_size_(target.config().vocab_size),
      takes_trees_(target.takes_trees()),
      ids_(request.prompt) {}

int64_t Sequence::room() const {
  const int64_t generated = static_cast<int64_t>(result_.tokens.size());
  const int64_t budget = request_.max_new_tokens - generated - 1;
  const int64_t positions = max_positions_ - static_cast<int64_t>(ids_.size());
  return std::max<int64_t>(0, std::min(budget, positions));
}

void Sequence::set_drafts(const Proposal& proposal, int64_t most) {
  drafts_ = DraftTree(
      proposal,
      {.room = std::min(room(), most), .vocab_size = vocab_size_, .branches = takes_trees_});
}

PassPart Sequence::plan(int64_t prefill_rows) const {
  PassPart part;
  part.first_position = state_->length();
  part.prefill = in_prefill();
  if (part.prefill) {
    part.num_rows = std::min(prefill_rows, num_prompt_ - part.first_position);
    part.chooses = part.num_rows > 0 && part.first_position + part.num_rows == num_prompt_;
  } else {
    part.num_rows = drafts_.num_rows();
    part.chooses = true;
  }
  return part;
}

void Sequence::append_rows(const PassPart& part, std::vector<int64_t>& ids_R,
                           std::vector<int64_t>& pos_R) const {
  const auto begin = ids_.begin() + part.first_position;
  if (part.prefill) {
    ids_R.insert(ids_R.end(), begin, begin + part.num_rows);
  } else {
    ids_R.push_back(*begin);
    ids_R.insert(ids_R.end(), drafts_.draft_ids().begin(), drafts_.draft_ids().end());
  }
  for (int64_t r = 0; r < part.num_rows; ++r) {
    pos_R.push_back(part.first_position + (part.prefill ? r : drafts_.depth(r)));
  }
}

void Sequence::push(int64_t token) {
  ids_.push_back(token);
  result_.tokens.push_back(token);
  const auto& stops = request_.stop_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    result_.finish = Finish::kStop;
    finished_ = true;
  } else if (static_cast<int64_t>(result_.tokens.size()) >= request_.max_new_tokens) {
    result_.finish = Finish::kLength;
    finished_ = true;
  } else if (static_cast<int64_t>(ids_.size()) > max_positions_) {
    result_.finish = Finish::kContext;  // the last token has no row left to be fed in
    finished_ = true;
  }
}

/// The target's token for `position`, into the commit and the result.
int64_t Sequence::commit_token(int64_t row, int64_t position, const Choices& choices,
                               Commit& commit) {
  const int64_t token = choices.at(row, request_.sampling, position);
  commit.tokens.push_back(token);
  if (request_.num_top_log_probs) {
    commit.log_probs.push_back(choices.log_probs_at(row, token, *request_.num_top_log_probs));
    result_.log_probs.push_back(commit.log_probs.back());
  }
  push(token);
  return token;
}

/// The target's choices lead through the tree, whatever was proposed beside their way.
void Sequence::verify(PassPart& part, const Choices& choices, Commit& commit) {
  commit.proposed = drafts_.proposed();
  for (int64_t row = 0; row >= 0;) {
    part.way.push_back(row);
    const int64_t position = part.first_position + static_cast<int64_t>(part.way.size());
    const int64_t token = commit_token(part.first_row + row, position, choices, commit);
    row = drafts_.child(row, token);
    commit.accepted += row >= 0 ? 1 : 0;
    if (finished_) break;
  }
  result_.counts.add_pass(commit.proposed, commit.accepted,
                          static_cast<int64_t>(commit.tokens.size()));
}

Commit Sequence::take(PassPart& part, const Choices& choices) {
  Commit commit;
  commit.request = request_index_;
  if (part.prefill) {
    part.keep = part.num_rows;
    if (part.chooses) {
      commit_token(part.first_row + part.num_rows - 1, num_prompt_, choices, commit);
    }
  } else {
    verify(part, choices, commit);
    part.keep = static_cast<int64_t>(commit.tokens.size());
  }
  if (row_parents(part).empty()) {
    part.way.clear();
    state_->commit(part.keep);
  } else {
    state_->commit_path(part.way);
  }
  drafts_ = DraftTree();
  return commit;
}

}  // namespace dflash::decode
