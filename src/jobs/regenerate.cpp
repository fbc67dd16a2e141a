#include "jobs/regenerate.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/stop.h"
#include "decode/engine.h"
#include "io/jsonl.h"
#include "nn/compute.h"

namespace dflash::jobs {
namespace fs = std::filesystem;
namespace {

/// One answer to make: sample 0 is greedy, the others are sampled.
struct Work {
  size_t prompt = 0;
  int64_t sample = 0;
  std::string id;
};

Json settings_json(const Model& model, const RegenerateOptions& options) {
  return {{"format", "dflash-answers"},
          {"version", 2},  // 1 keyed the seeds by the order of the prompts
          {"target_fingerprint", model.target->fingerprint()},
          {"tokenizer_fingerprint", model.tokenizer->fingerprint()},
          {"target", describe(*model.target)},
          {"template", model.chat.name()},
          {"compute", nn::compute_name(model.target->compute())},
          {"max_new_tokens", options.max_new_tokens},
          {"temperature", options.temperature},
          {"top_p", options.top_p},
          {"seed", options.seed}};
}

fs::path settings_path(const fs::path& out) {
  return out.string() + ".json";
}

/// Error when `out` holds answers made with other settings.
void check_settings(const fs::path& out, const Json& settings) {
  if (fs::is_directory(out)) fail("{}: is a folder, expected a .jsonl file", out.string());
  if (!fs::exists(out) || fs::file_size(out) == 0) return;
  const fs::path path = settings_path(out);
  if (!fs::exists(path))
    fail("{} exists but {} does not: not a file of ours", out.string(), path.string());
  const Json found = read_json(path);
  if (!found.is_object()) fail("{}: expected an object, got {}", path.string(), found.type_name());
  for (const auto& [key, value] : settings.items()) {
    if (key == "target" || found.value(key, Json()) == value) continue;
    if (key == "compute" && !found.contains(key)) continue;  // files of earlier versions
    fail(
        "cannot go on with {}: it was made with {} = {}, now it is {}\n  hint: use the same "
        "settings, or another --out",
        out.string(), key, found.value(key, Json()).dump(), value.dump());
  }
}

/// Cuts a last line without an end off; true when there was one.
bool cut_torn_line(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const uint64_t size = fs::file_size(path);
  uint64_t end = size;  // of the last whole line
  while (end > 0) {
    std::string piece(std::min<uint64_t>(end, 1 << 16), '\0');
    stream.seekg(static_cast<std::streamoff>(end - piece.size()));
    if (!stream.read(piece.data(), static_cast<std::streamsize>(piece.size()))) {
      fail("cannot read {}", path.string());
    }
    const size_t feed = piece.rfind('\n');
    end -= feed == std::string::npos ? piece.size() : piece.size() - feed - 1;
    if (feed != std::string::npos) break;
  }
  if (end < size) fs::resize_file(path, end);
  return end < size;
}

/// Prompt ids of the answers that the file holds, by the answers' ids.
using Finished = std::map<std::string, std::vector<int64_t>>;

/// A torn last line is cut off.
Finished finished_answers(const fs::path& out) {
  Finished answers;
  if (!fs::exists(out)) return answers;
  if (cut_torn_line(out)) {
    log_warning("{}: the last line was cut off; it is made again", out.string());
  }
  io::read_jsonl(out, {}, [&](int64_t, const Json& line) {
    const bool answer = line.is_object() && line.value("id", Json()).is_string() &&
                        line.value("prompt_ids", Json()).is_array();
    if (!answer) {
      throw io::BadRecord("not an answer\n  hint: remove the line, or use another --out");
    }
    answers[line["id"].get<std::string>()] = line["prompt_ids"].get<std::vector<int64_t>>();
  });
  return answers;
}

/// The answers that are still to be made, and the prompts that can have none.
struct OpenWork {
  std::vector<Work> items;
  std::vector<decode::Request> requests;  // one an item
  int64_t there = 0;                      // answers asked for that are made
  data::Drops skipped;
};

/// The seed of a sampled answer depends on its prompt's id alone, not on where in the file it
/// stands.
decode::Request make_request(const Model& model, const std::vector<int64_t>& ids,
                             const std::string& prompt_id, const Work& item,
                             const RegenerateOptions& options) {
  decode::Request request;
  request.prompt = ids;
  request.max_new_tokens = options.max_new_tokens;
  request.stop_ids = model.tokenizer->stop_ids();
  if (item.sample > 0) {
    request.sampling.temperature = options.temperature;
    request.sampling.top_p = options.top_p;
    request.sampling.seed =
        mix({options.seed, mix_text(prompt_id), static_cast<uint64_t>(item.sample)});
  }
  return request;
}

/// All first answers before the second ones: a run cut by time has seen every prompt.
OpenWork open_work(const Model& model, const std::vector<Prompt>& prompts,
                   const RegenerateOptions& options, const Finished& done) {
  OpenWork open;
  std::vector<EncodedPrompt> encoded;
  for (const Prompt& prompt : prompts) {
    encoded.push_back(encode_prompt(model, prompt));
    const EncodedPrompt& last = encoded.back();
    if (last.refused.empty()) continue;
    open.skipped.add(last.refused, prompt.where.empty() ? prompt.id : prompt.where, last.detail);
  }
  open.skipped.warn("prompts");
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      Work item{i, sample, prompts[i].id + "#" + std::to_string(sample)};
      if (const auto made = done.find(item.id); made != done.end()) {
        if (encoded[i].refused.empty() && made->second != encoded[i].ids) {
          fail(
              "{}: answer {} is to another prompt of that id than {}\n  hint: another --out, or "
              "ids of its own for every prompt",
              options.out.string(), item.id, prompts[i].where);
        }
        open.there += 1;
        continue;
      }
      if (!encoded[i].refused.empty()) continue;
      open.requests.push_back(make_request(model, encoded[i].ids, prompts[i].id, item, options));
      open.items.push_back(std::move(item));
    }
  }
  if (open.items.empty() && open.there == 0) {
    fail("none of the {} prompts can be answered", prompts.size());
  }
  return open;
}

std::string answer_line(const Model& model, const Prompt& prompt, const Work& item,
                        const decode::Request& request, const decode::Result& result) {
  return Json{{"id", item.id},
              {"kind", prompt.kind},
              {"prompt_ids", request.prompt},
              {"answer_ids", result.tokens},
              {"answer", model.tokenizer->decode(result.tokens, /*skip_special=*/true)},
              {"finish", decode::finish_name(result.finish)},
              {"temperature", request.sampling.temperature},
              {"seed", request.sampling.seed}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

/// The open answers file; lines are appended whole and synced when it closes.
class AnswerFile {
 public:
  explicit AnswerFile(fs::path path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail("cannot open {} for writing", path_.string());
  }
  ~AnswerFile() {
    ::fsync(fd_);
    ::close(fd_);
  }
  void append(const std::string& line) { write_all(fd_, line.data(), line.size(), path_); }

 private:
  fs::path path_;
  int fd_;
};

}  // namespace

void RegenerateReport::skip(const data::Drops& drops) {
  for (const auto& [reason, drop] : drops.by_reason()) skipped[reason] += drop.count;
}

int64_t RegenerateReport::num_skipped() const {
  int64_t sum = 0;
  for (const auto& [reason, count] : skipped) sum += count;
  return sum;
}

std::string RegenerateReport::text() const {
  std::string line =
      fmt::format("{} new answers ({} were there), {} tokens in {}, {} cut by the budget", answers,
                  resumed, tokens, format_duration(seconds), cut_by_budget);
  for (const auto& [reason, count] : skipped) {
    line += fmt::format("; {} prompt{} skipped, {}", count, count == 1 ? "" : "s", reason);
  }
  if (dropped > 0) line += fmt::format("; {} begun but not ended, dropped", dropped);
  return line + (stopped ? "; stopped early, the same command goes on" : "");
}

Json RegenerateReport::to_json() const {
  return {{"answers", answers},
          {"resumed", resumed},
          {"tokens", tokens},
          {"cut_by_budget", cut_by_budget},
          {"dropped", dropped},
          {"skipped", num_skipped()},
          {"skipped_by_reason", skipped},
          {"seconds", seconds},
          {"stopped", stopped}};
}

RegenerateReport regenerate(const Model& model, const std::vector<Prompt>& prompts,
                            const RegenerateOptions& options) {
  const auto lock = lock_file(options.out);
  const Json settings = settings_json(model, options);
  check_settings(options.out, settings);
  const Finished done = finished_answers(options.out);
  const OpenWork open = open_work(model, prompts, options, done);
  const auto& work = open.items;
  if (done.empty()) write_json(settings_path(options.out), settings);
  RegenerateReport report{.resumed = open.there};
  report.skip(open.skipped);
  AnswerFile file(options.out);
  Timer timer;
  const bool timed = options.max_seconds > 0;  // then the time ends it, not the number of prompts
  const int64_t total = timed ? 0 : static_cast<int64_t>(work.size()) + open.there;
  Progress progress("regenerate", "answers", total, report.resumed);
  decode::EngineOptions engine{.max_batch = options.batch};
  engine.should_stop = [] { return stop_requested(); };
  engine.stop_admitting = [&] {  // begun answers are finished, or short ones would be favoured
    return timed && timer.seconds() > options.max_seconds;
  };
  engine.on_finish = [&](size_t i, const decode::Result& result) {
    file.append(answer_line(model, prompts[work[i].prompt], work[i], open.requests[i], result));
    report.answers += 1;
    report.tokens += static_cast<int64_t>(result.tokens.size());
    report.cut_by_budget += result.finish == decode::Finish::kStop ? 0 : 1;
    const double seconds = timer.seconds();
    progress.update(
        report.resumed + report.answers,
        fmt::format(
            "{:.0f} tok/s{}", static_cast<double>(report.tokens) / seconds,
            timed ? fmt::format(", {:.0f} of {:.0f} s", seconds, options.max_seconds) : ""));
  };
  const auto run = decode::generate(*model.target, /*proposer=*/nullptr, open.requests, engine);
  report.seconds = timer.seconds();
  for (size_t i = 0; i < work.size(); ++i) {
    report.dropped += !run.finished[i] && !run.results[i].tokens.empty() ? 1 : 0;
  }
  report.stopped = report.answers < static_cast<int64_t>(work.size());
  progress.finish(fmt::format("{} tokens, {:.0f} tok/s", report.tokens,
                              static_cast<double>(report.tokens) / report.seconds));
  return report;
}

}  // namespace dflash::jobs
