#include "cli/stream.h"

#include <cstdio>

#include "base/progress.h"
#include "base/stop.h"

namespace dflash::cli {
namespace {

constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

/// Prints committed tokens; special tokens (end of turn) are not shown.
class Printer {
 public:
  Printer(const text::Tokenizer& tokenizer, const StreamOptions& options)
      : tokenizer_(tokenizer), decoder_(tokenizer), options_(options) {}

  void show(const decode::Commit& commit) {
    for (size_t i = 0; i < commit.tokens.size(); ++i) {
      if (tokenizer_.is_special(commit.tokens[i])) continue;
      emit(decoder_.push(commit.tokens[i]), static_cast<int64_t>(i) < commit.accepted);
    }
    std::fflush(stdout);
  }
  void finish() {
    emit(decoder_.flush(), /*accepted=*/false);
    std::fflush(stdout);
  }

 private:
  void emit(const std::string& piece, bool accepted) {
    if (piece.empty()) return;
    if (options_.color && accepted) {
      fmt::print("{}{}{}", kGreen, piece, kPlain);
    } else {
      fmt::print("{}", piece);
    }
  }

  const text::Tokenizer& tokenizer_;
  text::StreamDecoder decoder_;
  StreamOptions options_;
};

/// One object a token: its id, its text, its log-probability, the likeliest ids with theirs.
Json log_probs_json(const std::vector<int64_t>& tokens,
                    const std::vector<decode::TokenLogProbs>& log_probs,
                    const text::Tokenizer& tokenizer) {
  const auto entry = [&](int64_t id, double log_prob) -> Json {
    return {{"id", id}, {"text", tokenizer.decode({id})}, {"log_prob", log_prob}};
  };
  Json rows = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    Json row = entry(tokens[i], log_probs[i].log_prob);
    for (const auto& [id, log_prob] : log_probs[i].top) row["top"].push_back(entry(id, log_prob));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string Generation::summary(const std::string& proposer) const {
  std::string text = fmt::format("{}: ", proposer);
  if (result.counts.passes() > 0) text += fmt::format("tau {:.2f}, ", result.counts.tau());
  text +=
      fmt::format("{:.1f} tok/s ({}, prompt {:.2f} s)", tokens_per_second(),
                  counted(static_cast<int64_t>(result.tokens.size()), "tokens"), prefill_seconds);
  if (stopped) return text + ", stopped";
  if (result.finish == decode::Finish::kLength) text += ", cut off by --max-new";
  if (result.finish == decode::Finish::kContext) text += ", cut off by the target's context";
  return text;
}

Json Generation::to_json(const std::string& proposer, const text::Tokenizer& tokenizer) const {
  Json json = {{"text", text},
               {"ids", result.tokens},
               {"finish", decode::finish_name(result.finish)},
               {"proposer", proposer},
               {"acceptance", result.counts.to_json()},
               {"prefill_seconds", prefill_seconds},
               {"decode_seconds", decode_seconds},
               {"tokens_per_second", tokens_per_second()}};
  if (!result.log_probs.empty()) {
    json["log_probs"] = log_probs_json(result.tokens, result.log_probs, tokenizer);
  }
  return json;
}

Generation stream_generation(const jobs::Model& model, decode::Proposer* proposer,
                             const std::vector<int64_t>& prompt, const SamplingOptions& sampling,
                             const StreamOptions& options) {
  decode::Request request;
  request.prompt = prompt;
  request.sampling = sampling.sampling;
  request.max_new_tokens = sampling.max_new_tokens;
  request.stop_ids = model.tokenizer->stop_ids();
  request.num_top_log_probs = options.num_top_log_probs;
  Printer printer(*model.tokenizer, options);
  decode::EngineOptions engine;
  engine.should_stop = [] { return stop_requested(); };
  if (options.print) engine.on_commit = [&](const decode::Commit& commit) { printer.show(commit); };
  const auto run = decode::generate(*model.target, proposer, {request}, engine);
  if (options.print) printer.finish();
  return {.text = model.tokenizer->decode(run.results[0].tokens, /*skip_special=*/true),
          .result = run.results[0],
          .prefill_seconds = run.prefill_seconds,
          .decode_seconds = run.decode_seconds,
          .decode_tokens = run.decode_tokens,
          .stopped = stop_requested()};
}

}  // namespace dflash::cli
