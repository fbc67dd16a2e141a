#include "jobs/regenerate.h"

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/stop.h"
#include "decode/engine.h"

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
          {"version", 1},
          {"target_fingerprint", model.target->fingerprint()},
          {"tokenizer_fingerprint", model.tokenizer->fingerprint()},
          {"target", describe(*model.target)},
          {"template", model.chat.name()},
          {"max_new_tokens", options.max_new_tokens},
          {"temperature", options.temperature},
          {"top_p", options.top_p},
          {"seed", options.seed}};
}

/// Writes the settings beside a new file, or checks that a resumed one has the same.
void check_settings(const fs::path& out, const Json& settings) {
  const fs::path path = out.string() + ".json";
  if (!fs::exists(out) || fs::file_size(out) == 0) {
    write_json(path, settings);
    return;
  }
  if (!fs::exists(path))
    fail("{} exists but {} does not: not a file of ours", out.string(), path.string());
  const Json found = read_json(path);
  for (const auto& [key, value] : settings.items()) {
    if (key == "target" || found.value(key, Json()) == value) continue;
    fail(
        "cannot go on with {}: it was made with {} = {}, now it is {}\n  hint: use the same "
        "settings, or another --out",
        out.string(), key, found.value(key, Json()).dump(), value.dump());
  }
}

/// Ids of the answers that the file holds; a torn last line is cut off.
std::set<std::string> finished_ids(const fs::path& out) {
  std::set<std::string> ids;
  if (!fs::exists(out)) return ids;
  const std::string text = read_text(out);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const Json line = Json::parse(text.begin() + begin, text.begin() + end, nullptr, false);
    if (line.is_discarded() || !line.contains("id")) {
      fail("damaged line in {} at byte {}\n  hint: remove the line, or use another --out",
           out.string(), begin);
    }
    ids.insert(line["id"].get<std::string>());
  }
  if (begin < text.size()) {
    log_warning("{}: the last line was cut off; it is made again", out.string());
    fs::resize_file(out, begin);
  }
  return ids;
}

std::vector<Work> open_work(const std::vector<Prompt>& prompts, const RegenerateOptions& options,
                            const std::set<std::string>& done) {
  std::vector<Work> work;
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::string id = prompts[i].id + "#" + std::to_string(sample);
      if (!done.contains(id)) work.push_back({i, sample, std::move(id)});
    }
  }
  return work;
}

decode::Request make_request(const Model& model, const Prompt& prompt, const Work& item,
                             const RegenerateOptions& options) {
  decode::Request request;
  request.prompt = text::encode_prompt(*model.tokenizer, model.chat, prompt.messages);
  request.max_new_tokens = options.max_new_tokens;
  request.stop_ids = model.tokenizer->stop_ids();
  if (item.sample > 0) {
    request.sampling.temperature = options.temperature;
    request.sampling.top_p = options.top_p;
    request.sampling.seed = mix({options.seed, item.prompt, static_cast<uint64_t>(item.sample)});
  }
  return request;
}

std::string answer_line(const Model& model, const Prompt& prompt, const Work& item,
                        const decode::Request& request, const decode::Result& result) {
  const char* finish[] = {"stop", "length", "context"};
  return Json{{"id", item.id},
              {"kind", prompt.kind},
              {"prompt_ids", request.prompt},
              {"answer_ids", result.tokens},
              {"answer", model.tokenizer->decode(result.tokens, /*skip_special=*/true)},
              {"finish", finish[static_cast<int>(result.finish)]},
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

RegenerateReport regenerate(const Model& model, const std::vector<Prompt>& prompts,
                            const RegenerateOptions& options) {
  if (options.out.has_parent_path()) make_folder(options.out.parent_path());
  check_settings(options.out, settings_json(model, options));
  const auto done = finished_ids(options.out);
  const auto work = open_work(prompts, options, done);
  std::vector<decode::Request> requests;
  for (const Work& item : work) {
    requests.push_back(make_request(model, prompts[item.prompt], item, options));
  }
  RegenerateReport report{.resumed = static_cast<int64_t>(done.size())};
  AnswerFile file(options.out);
  Timer timer;
  Progress progress("regenerate", "answers", static_cast<int64_t>(work.size() + done.size()),
                    report.resumed);
  decode::EngineOptions engine{.max_batch = options.batch};
  engine.should_stop = [] { return stop_requested(); };
  engine.stop_admitting = [&] {  // begun answers are finished, or short ones would be favoured
    return options.max_seconds > 0 && timer.seconds() > options.max_seconds;
  };
  engine.on_finish = [&](size_t i, const decode::Result& result) {
    file.append(answer_line(model, prompts[work[i].prompt], work[i], requests[i], result));
    report.answers += 1;
    report.tokens += static_cast<int64_t>(result.tokens.size());
    report.cut_by_budget += result.finish == decode::Finish::kStop ? 0 : 1;
    progress.update(
        report.resumed + report.answers,
        fmt::format("{:.0f} tok/s", static_cast<double>(report.tokens) / timer.seconds()));
  };
  decode::generate(*model.target, /*proposer=*/nullptr, requests, engine);
  report.seconds = timer.seconds();
  report.stopped = report.answers < static_cast<int64_t>(work.size());
  progress.finish(fmt::format("{} tokens, {:.0f} tok/s", report.tokens,
                              static_cast<double>(report.tokens) / report.seconds));
  return report;
}

}  // namespace dflash::jobs
