#include "serve/generation.h"

#include <algorithm>

namespace dflash::serve {

std::optional<Update> Generation::wait(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, longest, [this] { return news_.is_news(); })) return std::nullopt;
  Update update = news_;
  news_.pieces.clear();
  news_.scored.clear();
  return update;
}

const decode::Request& Generation::submission() {
  submission_ = query_.request;
  submission_.prompt.insert(submission_.prompt.end(), tokens_.begin(), tokens_.end());
  submission_.max_new_tokens -= static_cast<int64_t>(tokens_.size());
  result_ = {};
  first_commit_ = true;
  return submission_;
}

bool Generation::is_end(int64_t id) const {
  const std::vector<int64_t>& ends = query_.request.stop_ids;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

bool Generation::commit(const decode::Commit& commit) {
  const auto num_tokens = static_cast<int64_t>(commit.tokens.size());
  std::lock_guard lock(mutex_);
  if (tokens_.empty()) news_.reused_tokens = result_.reused_rows;
  int64_t taken = 0;
  while (taken < num_tokens && !stopped_) {
    const int64_t id = commit.tokens[taken];
    if (!commit.log_probs.empty() && !is_end(id)) {
      news_.scored.push_back({id, commit.log_probs[taken]});
    }
    stopped_ = text_.push(id, taken < commit.accepted);
    tokens_.push_back(id);
    ++taken;
  }
  if (!first_commit_) {
    news_.counts.add_pass(commit.proposed, std::min(commit.accepted, taken), taken);
  }
  first_commit_ = false;
  news_.num_tokens = static_cast<int64_t>(tokens_.size());
  for (Piece& piece : text_.take()) news_.pieces.push_back(std::move(piece));
  changed_.notify_all();
  return stopped_;
}

Ending Generation::reached() const {
  if (stopped_ || (!tokens_.empty() && is_end(tokens_.back()))) return Ending::kStop;
  const bool spent = static_cast<int64_t>(tokens_.size()) >= query_.request.max_new_tokens;
  return spent ? Ending::kLength : Ending::kNone;
}

void Generation::end(Ending ending, const std::string& error) {
  std::lock_guard lock(mutex_);
  text_.finish();
  for (Piece& piece : text_.take()) news_.pieces.push_back(std::move(piece));
  news_.ending = ending;
  news_.error = error;
  changed_.notify_all();
}

}  // namespace dflash::serve
