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
      ids_(request.prompt) {}

int64_t Sequence::room() const {
  const int64_t generated = static_cast<int64_t>(result_.tokens.size());
  const int64_t budget = request_.max_new_tokens - generated - 1;
  const int64_t positions = max_positions_ - static_cast<int64_t>(ids_.size());
  return std::max<int64_t>(0, std::min(budget, positions));
}

void Sequence::set_drafts(std::vector<int64_t> drafts) {
  drafts_ = std::move(drafts);
  drafts_.resize(std::min<size_t>(drafts_.size(), room()));
  // The choice that follows the last fed row is compared with the foreign id and differs from it.
  const auto foreign = std::find_if(drafts_.begin(), drafts_.end(),
                                    [this](int64_t id) { return id < 0 || id >= vocab_size_; });
  draft_rows_ = foreign - drafts_.begin();
}

PassPart Sequence::plan(int64_t prefill_rows) const {
  PassPart part;
  part.first_position = state_->length();
  part.prefill = in_prefill();
  if (part.prefill) {
    part.num_rows = std::min(prefill_rows, num_prompt_ - part.first_position);
    part.chooses = part.num_rows > 0 && part.first_position + part.num_rows == num_prompt_;
  } else {
    part.num_rows = 1 + draft_rows_;
    part.chooses = true;
  }
  return part;
}

void Sequence::append_row_ids(const PassPart& part, std::vector<int64_t>& ids_R) const {
  const auto begin = ids_.begin() + part.first_position;
  if (part.prefill) {
    ids_R.insert(ids_R.end(), begin, begin + part.num_rows);
  } else {
    ids_R.push_back(*begin);
    ids_R.insert(ids_R.end(), drafts_.begin(), drafts_.begin() + draft_rows_);
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

void Sequence::verify(const PassPart& part, const Choices& choices, Commit& commit) {
  commit.proposed = static_cast<int64_t>(drafts_.size());
  for (int64_t k = 0;; ++k) {
    const int64_t token =
        commit_token(part.first_row + k, part.first_position + k + 1, choices, commit);
    const bool matches = k < commit.proposed && drafts_[k] == token;
    commit.accepted += matches ? 1 : 0;
    if (!matches || finished_) break;
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
  state_->commit(part.keep);
  drafts_.clear();
  draft_rows_ = 0;
  return commit;
}

}  // namespace dflash::decode
