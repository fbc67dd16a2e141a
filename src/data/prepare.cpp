#include "data/prepare.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/stop.h"
#include "data/contamination.h"
#include "io/records.h"
#include "text/unrendered.h"

namespace dflash::data {
namespace fs = std::filesystem;
namespace {

bool is_stop(const text::Tokenizer& tokenizer, int64_t id) {
  const auto& stops = tokenizer.stop_ids();
  return std::find(stops.begin(), stops.end(), id) != stops.end();
}

/// Calls each(begin, end) for every stretch of supervised tokens.
template <typename Each>
void supervised_runs(const std::vector<uint8_t>& mask, Each each) {
  for (size_t begin = 0; begin < mask.size();) {
    size_t end = begin;
    while (end < mask.size() && mask[end] != 0) ++end;
    if (end > begin) each(begin, end);
    begin = end + 1;
  }
}

/// Files without an extension may be pipes; others (a README, a table) hold no records.
void check_extension(const fs::path& path) {
  constexpr std::array<std::string_view, 5> kKnown = {"", ".txt", ".jsonl", ".json", ".ndjson"};
  if (std::find(kKnown.begin(), kKnown.end(), path.extension().string()) != kKnown.end()) return;
  fail("{}: expected a .jsonl, .json or .txt file\n  hint: rename it when it is one",
       path.string());
}

/// Fields of OUT.jsonl.json, which `regenerate` writes beside its answers; null when there is none.
Json answer_settings(const fs::path& file) {
  const fs::path path = file.string() + ".json";
  if (!fs::exists(path)) return nullptr;
  Json settings = read_json(path);
  const bool ours = settings.is_object() && settings.value("format", Json()) == "dflash-answers";
  return ours ? settings : Json();
}

class Preparer {
 public:
  Preparer(const text::Tokenizer& tokenizer, const text::ChatTemplate* chat,
           const PrepareOptions& options)
      : tokenizer_(tokenizer),
        chat_(chat),
        options_(options),
        vocab_size_(options.vocab_size > 0 ? options.vocab_size : tokenizer.size()),
        progress_("prepare", "rows", 0) {
    for (const fs::path& path : options.held_out) held_out_.add_file(path);
  }

  void read_file(const fs::path& path);
  Prepared finish(const std::vector<fs::path>& files);

 private:
  void read_answers_settings(const fs::path& path);
  void read_record(const std::string& where, const OrderedJson& record);
  void add_row(const std::string& where, const Row& row);
  std::optional<Rejected> check_chat(const Row& row) const;
  void add_plain_text(const std::string& where, const text::Encoded& document, const Row& row);
  void add_document(const std::string& where, text::Encoded document, const Row& row);
  std::optional<Rejected> examine(const text::Encoded& document) const;
  bool loops(const text::Encoded& document) const;
  bool is_full() const;
  uint64_t key_of(const Row& row, const text::Encoded& document);
  void choose_documents();
  void warn_of_share();
  Json info(const std::vector<fs::path>& files) const;

  const text::Tokenizer& tokenizer_;
  const text::ChatTemplate* chat_;
  const PrepareOptions& options_;
  int64_t vocab_size_;
  HeldOut held_out_;
  Prepared out_;
  std::unordered_set<uint64_t> seen_contents_, seen_keys_;
  std::vector<bool> truncated_, cut_;   // of each document kept so far
  std::vector<int64_t> conversations_;  // of each: the number of its row; -1: no conversation
  std::vector<std::string> answers_of_;
  bool only_plain_text_ = true;
  Progress progress_;
};

void Preparer::read_file(const fs::path& path) {
  if (is_full()) return;
  check_extension(path);
  if (path.extension() == ".txt") {
    ++out_.report.rows;
    Row row;
    row.kind = Row::Kind::kPlainText;
    row.text = read_text(path);
    add_row(path.string(), row);
    return;
  }
  read_answers_settings(path);
  const io::RecordOptions options{
      .on_bad = io::OnBadLine::kSkip,
      .report = [&](const io::RecordPlace& place, const std::string& reason) {
        progress_.update(++out_.report.rows);
        out_.report.drop(fmt::format("broken {}", place.unit), place.str(), reason);
      }};
  const auto counts = io::read_records(path, options, [&](const auto& place, const auto& record) {
    if (stop_requested()) fail("stopped before the end: nothing was written");
    read_record(place.str(), record);
  });
  if (!counts.cut_off.empty()) {
    ++out_.report.rows;
    log_warning("{}: {}; is the file whole?", path.string(), counts.cut_off);
    out_.report.drop("cut off at the end of the file", path.string(), counts.cut_off);
  }
}

void Preparer::read_answers_settings(const fs::path& path) {
  const Json settings = answer_settings(path);
  if (!settings.is_object()) return;
  const Json made_by = settings.value("tokenizer_fingerprint", Json());
  if (made_by.is_string() && made_by != tokenizer_.fingerprint()) {
    fail(
        "{}: its ids are of another tokenizer: expected {}, got {}\n"
        "  hint: prepare with the target that wrote the answers",
        path.string(), tokenizer_.fingerprint(), made_by.get<std::string>());
  }
  const Json target = settings.value("target_fingerprint", Json());
  if (!target.is_string()) return;
  if (std::find(answers_of_.begin(), answers_of_.end(), target) == answers_of_.end()) {
    answers_of_.push_back(target.get<std::string>());
  }
}

void Preparer::read_record(const std::string& where, const OrderedJson& record) {
  if (is_full()) return;
  progress_.update(++out_.report.rows);
  const ParsedRow parsed = parse_row(record);
  if (const auto* rejected = std::get_if<Rejected>(&parsed)) {
    out_.report.drop(rejected->reason, where, rejected->detail);
    return;
  }
  add_row(where, std::get<Row>(parsed));
}

void Preparer::add_row(const std::string& where, const Row& row) {
  if (row.kind == Row::Kind::kPlainText && !options_.plain_text) {
    return out_.report.drop("plain text, not asked for", where, "");
  }
  std::vector<text::Encoded> documents;
  try {
    if (const auto rejected = check_chat(row)) {
      return out_.report.drop(rejected->reason, where, rejected->detail);
    }
    documents = encode_row(row, tokenizer_, chat_);
  } catch (const Error& error) {  // one odd row never ends the run (PREP-01)
    return out_.report.drop("refused by the chat template or tokenizer", where, error.what());
  }
  if (row.kind == Row::Kind::kPlainText) return add_plain_text(where, documents[0], row);
  for (size_t i = 0; i < documents.size() && !is_full(); ++i) {
    out_.report.more_rows += i > 0 ? 1 : 0;
    add_document(where, std::move(documents[i]), row);
  }
}

/// What there is to train on in a conversation, and whether the template shows all of it.
std::optional<Rejected> Preparer::check_chat(const Row& row) const {
  if (row.kind != Row::Kind::kChat) return std::nullopt;
  const auto& messages = row.conversation.messages;
  const bool answered = std::any_of(messages.begin(), messages.end(),
                                    [](const auto& m) { return m.role == "assistant"; });
  if (!answered) return Rejected{"prompt without an answer", ""};
  if (chat_ == nullptr) return Rejected{"needs a chat template, the model has none", ""};
  const std::string missing = text::unrendered(*chat_, row.conversation);
  if (missing.empty()) return std::nullopt;
  return Rejected{text::unrendered_reason(missing), ""};
}

void Preparer::add_plain_text(const std::string& where, const text::Encoded& document,
                              const Row& row) {
  if (document.ids.empty()) return out_.report.drop("empty text", where, "");
  for (size_t begin = 0; begin < document.ids.size() && !is_full(); begin += options_.max_tokens) {
    out_.report.pieces += begin > 0 ? 1 : 0;
    const size_t end = std::min(begin + options_.max_tokens, document.ids.size());
    add_document(where,
                 {{document.ids.begin() + begin, document.ids.begin() + end},
                  {document.loss_mask.begin() + begin, document.loss_mask.begin() + end}},
                 row);
  }
}

void Preparer::add_document(const std::string& where, text::Encoded document, const Row& row) {
  if (is_full()) return;
  const bool truncated = truncate(document, options_.max_tokens);
  if (const auto rejected = examine(document)) {
    return out_.report.drop(rejected->reason, where, rejected->detail);
  }
  if (options_.drop_duplicates &&
      !seen_contents_.insert(content_hash(document.ids, document.loss_mask)).second) {
    return out_.report.drop("duplicate", where, row.id);
  }
  const bool ends =
      std::any_of(document.ids.end() - std::min<size_t>(2, document.ids.size()), document.ids.end(),
                  [&](int64_t id) { return is_stop(tokenizer_, id); });
  truncated_.push_back(truncated);
  cut_.push_back(!ends && row.kind == Row::Kind::kExactIds);
  conversations_.push_back(row.kind == Row::Kind::kChat ? out_.report.rows : -1);
  only_plain_text_ = only_plain_text_ && row.kind == Row::Kind::kPlainText;
  const uint64_t key = key_of(row, document);
  out_.dataset.add({std::move(document.ids), std::move(document.loss_mask), key});
}

std::optional<Rejected> Preparer::examine(const text::Encoded& document) const {
  for (int64_t id : document.ids) {
    if (id < 0 || id >= vocab_size_) {
      return Rejected{"id outside the vocabulary",
                      fmt::format("expected 0 to {}, got {}", vocab_size_ - 1, id)};
    }
  }
  const int64_t run = longest_supervised_run(document.loss_mask);
  if (run < options_.min_supervised) {
    return Rejected{"too few supervised tokens",
                    fmt::format("expected {} in a row, got {}", options_.min_supervised, run)};
  }
  if (options_.drop_loops && loops(document)) return Rejected{"looping answer", ""};
  if (!held_out_.empty() &&
      held_out_.shares_run_with(tokenizer_.decode(document.ids, /*skip_special=*/true))) {
    return Rejected{"shares text with held-out files", ""};
  }
  return std::nullopt;
}

bool Preparer::loops(const text::Encoded& document) const {
  bool found = false;
  supervised_runs(document.loss_mask, [&](size_t begin, size_t end) {
    while (end > begin && is_stop(tokenizer_, document.ids[end - 1])) --end;
    const auto answer = std::span(document.ids).subspan(begin, end - begin);
    found = found || find_loop(answer, options_.loops).has_value();
  });
  return found;
}

/// Enough documents. A shuffle draws from all rows, so it reads them all.
bool Preparer::is_full() const {
  return !options_.shuffle && options_.max_documents > 0 &&
         out_.dataset.num_documents() >= options_.max_documents;
}

/// The record's own id, else its content (PREP-22); a key that was taken is mixed with the content.
uint64_t Preparer::key_of(const Row& row, const text::Encoded& document) {
  const uint64_t content = content_hash(document.ids, document.loss_mask);
  uint64_t key = row.id.empty() ? content : mix_text(row.id);
  while (key == 0 || !seen_keys_.insert(key).second) key = mix({key, content});
  return key;
}

void Preparer::choose_documents() {
  const int64_t all = out_.dataset.num_documents();
  std::vector<int64_t> order;
  if (options_.shuffle) {
    order = shuffled_documents(all, options_.seed, /*epoch=*/0);
    if (options_.max_documents > 0 && options_.max_documents < all) {
      order.resize(static_cast<size_t>(options_.max_documents));
      for (int64_t left = all - options_.max_documents; left > 0; --left) {
        out_.report.drop("over the limit of documents", "", "");
      }
    }
    out_.dataset = select_documents(out_.dataset, order);
  }
  PrepareReport& report = out_.report;
  std::unordered_set<int64_t> conversations;
  for (int64_t i = 0; i < out_.dataset.num_documents(); ++i) {
    const int64_t d = options_.shuffle ? order[i] : i;
    if (conversations_[d] >= 0) conversations.insert(conversations_[d]);
    report.truncated += truncated_[d] ? 1 : 0;
    report.answers_cut += cut_[d] ? 1 : 0;
  }
  report.documents = out_.dataset.num_documents();
  report.conversations = static_cast<int64_t>(conversations.size());
  report.tokens = out_.dataset.num_tokens();
  report.supervised = out_.dataset.num_supervised();
}

/// Share 0 or 1 means that the mask is wrong, unless plain text was asked for (PREP-27).
void Preparer::warn_of_share() {
  const PrepareReport& report = out_.report;
  const bool declared = options_.plain_text && only_plain_text_;
  if (report.tokens == 0 || (report.supervised > 0 && report.supervised < report.tokens)) return;
  if (declared && report.supervised == report.tokens) return;
  const std::string warning =
      fmt::format("{} of {} tokens are supervised: the mask is not that of a conversation",
                  report.supervised, report.tokens);
  out_.report.warnings.push_back(warning);
  log_warning("{}", warning);
}

Json Preparer::info(const std::vector<fs::path>& files) const {
  std::vector<std::string> sources;
  for (const fs::path& file : files) sources.push_back(file.string());
  return {{"tokenizer_fingerprint", tokenizer_.fingerprint()},
          {"template", chat_ ? Json(chat_->name()) : Json()},
          {"vocab_size", vocab_size_},
          {"max_tokens", options_.max_tokens},
          {"plain_text", only_plain_text_},
          {"sources", sources},
          {"answers_of", answers_of_},
          {"report", out_.report.to_json()}};
}

Prepared Preparer::finish(const std::vector<fs::path>& files) {
  choose_documents();
  warn_of_share();
  progress_.update(out_.report.rows);
  progress_.finish();
  if (out_.report.documents == 0) {
    fail("prepare: no row is left, {} read\n{}  hint: the table says why each was dropped",
         out_.report.rows, out_.report.text());
  }
  out_.dataset.info = info(files);
  return std::move(out_);
}

}  // namespace

std::vector<text::Encoded> encode_row(const Row& row, const text::Tokenizer& tokenizer,
                                      const text::ChatTemplate* chat) {
  if (row.kind == Row::Kind::kChat) {
    DF_ASSERT(chat != nullptr, "a conversation needs a template");
    std::vector<text::Encoded> documents;
    for (const auto& segments : chat->training_rows(row.conversation)) {
      documents.push_back(text::encode_segments(tokenizer, segments));
    }
    return documents;
  }
  text::Encoded out;
  if (row.kind == Row::Kind::kPlainText) {
    out.ids = tokenizer.encode(row.text, text::Specials::kPlainText);
    out.loss_mask.assign(out.ids.size(), 1);
    return {std::move(out)};
  }
  out.ids = row.prompt_ids;
  out.ids.insert(out.ids.end(), row.answer_ids.begin(), row.answer_ids.end());
  out.loss_mask.assign(row.prompt_ids.size(), 0);
  out.loss_mask.resize(out.ids.size(), 1);
  return {std::move(out)};
}

bool truncate(text::Encoded& document, int64_t max_tokens) {
  const auto limit = static_cast<size_t>(max_tokens);
  if (document.ids.size() <= limit) return false;
  document.ids.resize(limit);
  document.loss_mask.resize(limit);
  return true;
}

int64_t longest_supervised_run(const std::vector<uint8_t>& loss_mask) {
  int64_t longest = 0;
  supervised_runs(loss_mask, [&](size_t begin, size_t end) {
    longest = std::max(longest, static_cast<int64_t>(end - begin));
  });
  return longest;
}

Prepared prepare(const std::vector<fs::path>& files, const text::Tokenizer& tokenizer,
                 const text::ChatTemplate* chat, const PrepareOptions& options) {
  if (options.max_tokens < 2) {
    fail("longest length: expected at least 2 tokens, got {}", options.max_tokens);
  }
  Preparer preparer(tokenizer, chat, options);
  for (const fs::path& file : files) preparer.read_file(file);
  return preparer.finish(files);
}

}  // namespace dflash::data
