#include "runs/run.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json_strict.h"
#include "base/output.h"
#include "base/progress.h"
#include "io/jsonl.h"

namespace dflash::runs {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxRecordBytes = 16 << 20, kMaxLineBytes = 1 << 20;
constexpr int64_t kMaxSlots = 64, kMaxStep = int64_t{1} << 40, kMaxAnchors = int64_t{1} << 31;
constexpr int kMaxDepth = 4;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number(const Json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end() || it->is_null()) return kNone;  // a NaN is written as null
  if (!it->is_number()) {
    throw io::BadRecord(fmt::format("\"{}\": expected a number, got {}", key, it->dump()));
  }
  return it->get<double>();
}

int64_t integer(const Json& json, const char* key, int64_t most) {
  const auto it = json.find(key);
  const bool good = it != json.end() && it->is_number_integer() && it->get<double>() >= 0 &&
                    it->get<double>() <= static_cast<double>(most);
  if (!good) {
    throw io::BadRecord(fmt::format("\"{}\": expected a count, got {}", key,
                                    it == json.end() ? "nothing" : it->dump()));
  }
  return it->get<int64_t>();
}

std::vector<double> shares(const Json& line, const char* key) {
  std::vector<double> out;
  const Json list = line.value(key, Json::array());
  if (!list.is_array() || list.size() > kMaxSlots) {
    throw io::BadRecord(fmt::format("\"{}\": expected a list of at most {}", key, kMaxSlots));
  }
  for (const Json& share : list) {
    if (!share.is_number()) throw io::BadRecord(fmt::format("\"{}\": expected numbers", key));
    out.push_back(share.get<double>());
  }
  return out;
}

Step read_step(const Json& line, int64_t step) {
  Step out;
  out.step = step;
  out.anchors = integer(line, "anchors", kMaxAnchors);
  out.loss = number(line, "loss");
  out.accuracy = number(line, "accuracy");
  out.expected_acceptance = number(line, "expected_acceptance");
  out.grad_norm = number(line, "grad_norm");
  out.rate_factor = number(line, "rate_factor");
  out.seconds = number(line, "seconds");
  out.applied = line.value("applied", Json(true)) != Json(false);
  out.slot_accuracy = shares(line, "slot_accuracy");
  return out;
}

void take_line(const Json& line, TrainingRun& run) {
  if (!line.is_object()) throw io::BadRecord("expected an object");
  const int64_t step = integer(line, "step", kMaxStep);
  if (line.contains("validation") && line["validation"].is_object()) {
    const Json& validation = line["validation"];
    run.validations.push_back(
        {step, number(validation, "tau"), shares(validation, "slot_acceptance")});
  } else if (line.contains("schedule") && line["schedule"].is_object()) {
    run.total_steps = integer(line["schedule"], "total_steps", kMaxStep);
  } else if (line.contains("loss")) {
    if (step <= run.last_step()) {
      throw io::BadRecord(fmt::format("expected a step after {}, got {}", run.last_step(), step));
    }
    Step read = read_step(line, step);
    read.anchors_seen = run.anchors_seen() + read.anchors;
    run.steps.push_back(std::move(read));
  } else {
    throw io::BadRecord("expected a step, a validation or a schedule");
  }
}

void read_metrics(const fs::path& path, TrainingRun& run) {
  if (!fs::exists(path)) {
    run.problems.push_back("metrics.jsonl is missing");
    return;
  }
  std::string first;
  io::JsonlOptions options;
  options.on_bad_line = io::OnBadLine::kSkip;
  options.max_line_bytes = kMaxLineBytes;
  options.report = [&](int64_t line, const std::string& reason) {
    if (first.empty()) first = fmt::format("line {}: {}", line, reason);
  };
  const auto counts =
      io::read_jsonl(path, options, [&](int64_t, const Json& line) { take_line(line, run); });
  if (counts.skipped > 0) {
    run.problems.push_back(fmt::format("metrics.jsonl: {} left out, {}{}",
                                       counted(counts.skipped, "broken lines"),
                                       counts.skipped > 1 ? "the first at " : "", first));
  }
  if (counts.cut_off) run.problems.push_back("metrics.jsonl: the last line is cut off");
}

Json read_record(const fs::path& path) {
  Json record;
  try {
    record = parse_json_strictly(read_text(path, kMaxRecordBytes));
  } catch (const Error& error) {
    fail(
        "{}: {}\n  hint: it was cut off or changed after training wrote it: copy it again, or "
        "remove "
        "it and go on with 'train --resume', which writes it anew",
        path.string(), error.what());
  }
  const Json format = record.is_object() ? record.value("format", Json()) : Json();
  if (format != "dflash-run") {
    fail("{}: expected format \"dflash-run\", got {}\n  hint: the folder that 'train --out' made",
         path.string(), format.dump());
  }
  const Json version = record.value("version", Json());
  if (version != 1) {
    fail("{}: expected version 1, got {}\n  hint: a newer program wrote it", path.string(),
         version.dump());
  }
  return record;
}

void find_gaps(TrainingRun& run) {
  std::string first;
  int64_t before = 0, missing = 0;
  for (const Step& step : run.steps) {
    const int64_t count = step.step - before - 1;
    if (count > 0 && first.empty()) first = std::to_string(before + 1);
    missing += count;
    before = step.step;
  }
  run.has_gaps = missing > 0;
  if (!run.has_gaps) return;
  run.problems.push_back(fmt::format(
      "metrics.jsonl: {} missing (the first: {}), so anchors seen are unknown from there",
      counted(missing, "steps"), first));
}

/// The dataset's fingerprint stands in checkpoints only. Zero-padded names sort by step.
Json newest_dataset(const fs::path& checkpoints) {
  std::error_code ignored;
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    if (fs::exists(entry.path() / "COMPLETE", ignored)) newest = std::max(newest, entry.path());
  }
  if (newest.empty()) return Json::object();
  try {
    const Json state = parse_json_strictly(read_text(newest / "state.json", kMaxRecordBytes));
    return state.is_object() ? state.value("dataset", Json::object()) : Json::object();
  } catch (const Error&) {
    return Json::object();  // a checkpoint's damage is for those who load it
  }
}

std::time_t time_of(const fs::path& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mtime : 0;
}

State state_of(const TrainingRun& run) {
  if (is_locked(run.path)) return State::kRunning;
  if (run.steps.empty()) return State::kBegun;
  return run.last_step() >= run.total_steps ? State::kFinished : State::kStopped;
}

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "run.json", ignored);
}

}  // namespace

const char* state_name(State state) {
  switch (state) {
    case State::kBegun:
      return "begun";
    case State::kRunning:
      return "running";
    case State::kStopped:
      return "stopped";
    case State::kFinished:
      return "finished";
  }
  return "";
}

double TrainingRun::anchors_per_second() const {
  double total = 0;
  for (const Step& step : steps) total += step.seconds >= 0 ? step.seconds : 0;
  return total > 0 ? static_cast<double>(anchors_seen()) / total : 0;
}

std::string TrainingRun::target() const {
  const Json config = record.value("config", Json::object());
  const Json text = config.is_object() ? config.value("target", Json()) : Json();
  if (!text.is_string()) return "unknown";
  const std::string full = text.get<std::string>();
  return full.substr(0, full.find(", kernels "));
}

TrainingRun read_run(const fs::path& path) {
  TrainingRun run;
  run.path = path;
  const fs::path record = path / "run.json";
  if (!fs::exists(record)) {
    fail("{}: expected a training run, got no run.json\n  hint: the folder that 'train --out' made",
         path.string());
  }
  run.record = read_record(record);
  const Json header = run.record.value("header", Json::object());
  try {
    if (header.is_object()) run.total_steps = integer(header, "total_steps", kMaxStep);
  } catch (const io::BadRecord& error) {
    run.problems.push_back(fmt::format("run.json: header: {}", error.what()));
  }
  const int64_t planned = run.total_steps;
  read_metrics(path / "metrics.jsonl", run);
  find_gaps(run);
  // A run that was resumed with a fixed length has gone past what was fitted before.
  if (run.last_step() > run.total_steps) run.total_steps = std::max(planned, run.last_step());
  run.dataset = newest_dataset(path / "checkpoints");
  run.written = std::max(time_of(path / "metrics.jsonl"), time_of(record));
  run.state = state_of(run);
  return run;
}

std::vector<fs::path> find_runs(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) fail("no such file or folder: {}", path.string());
  if (path.filename() == "run.json" || path.filename() == "metrics.jsonl") {
    return {path.has_parent_path() ? path.parent_path() : fs::path(".")};
  }
  if (is_run(path)) return {path};
  std::vector<fs::path> found;
  fs::recursive_directory_iterator it(path, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_symlink(ignored) || !it->is_directory(ignored)) continue;
    const bool run = is_run(it->path());
    if (run) found.push_back(it->path());
    if (run || it.depth() + 1 >= kMaxDepth) it.disable_recursion_pending();
  }
  if (found.empty()) {
    fail(
        "{}: expected a training run or a folder with some, got no run.json\n  hint: the folder "
        "that 'train --out' made, or one at most {} folders above",
        path.string(), kMaxDepth);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace dflash::runs
