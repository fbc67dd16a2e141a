#include "train/run.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/timer.h"
#include "train/ranks.h"

namespace dflash::train {
namespace fs = std::filesystem;
namespace {

constexpr double kFitShare = 0.05;  // of the time, between two looks at the pace
constexpr int64_t kMinSteps = 10;   // a shorter schedule has no shape

/// The loop's own state.
class Run {
 public:
  Run(Trainer& trainer, const RunOptions& options, const TrainCallbacks& callbacks)
      : trainer_(trainer), options_(options), callbacks_(callbacks) {}

  RunResult go() {
    start();
    first_step_ = trainer_.steps_done();
    began_ = now();
    bool stop = false;
    if (leads()) metrics_.emplace(options_.folder / "metrics.jsonl", first_step_);
    while (trainer_.steps_done() < trainer_.total_steps() && !stop) {
      result_.last = trainer_.step();
      anchors_ += result_.last.anchors;
      count_skipped();
      record(result_.last.to_json());
      fit_to_time();
      if (callbacks_.on_step) callbacks_.on_step(result_.last);
      stop = any_rank(callbacks_.should_stop && callbacks_.should_stop());
      after_step(stop);
    }
    finish();
    return result_;
  }

 private:
  fs::path checkpoints() const { return options_.folder / "checkpoints"; }
  Comm& comm() const { return trainer_.comm(); }
  /// Rank 0 alone writes, validates and measures time.
  bool leads() const { return comm().leads(); }

  bool any_rank(bool own) const {
    int64_t count = own ? 1 : 0;
    comm().all_reduce_sum(std::span(&count, 1));
    return count > 0;
  }

  void record(const Json& line) {
    if (leads()) metrics_->write(line);
  }

  void start() {
    if (leads()) make_folder(options_.folder);
    const auto latest = common_checkpoint(comm(), checkpoints());
    if (latest && !options_.resume) {
      fail(
          "run {}: it already has checkpoints (step {})\n  hint: resume it, or choose another "
          "folder",
          options_.folder.string(), latest->step);
    }
    if (leads()) {  // before hours of work
      require_free_space(options_.folder, trainer_.checkpoint(-1).bytes);
    }
    if (latest) resume(*latest);
    trainer_.expect_equal_ranks({{"timed", options_.max_seconds > 0},
                                 {"validates", callbacks_.validate != nullptr},
                                 {"drafter", options_.config.value("drafter", Json())},
                                 {"target", options_.config.value("target_fingerprint", Json())}});
    budget_ = options_.max_seconds;
    if (options_.max_seconds > 0 && trainer_.steps_done() == 0) plan();
    next_fit_ = earlier_seconds_ + kFitShare * budget_;
    if (!leads()) return;
    write_json(options_.folder / "run.json", {{"format", "dflash-run"},
                                              {"version", 1},
                                              {"config", options_.config},
                                              {"header", trainer_.header()}});
  }

  void count_skipped() {
    if (result_.last.applied || result_.skipped++ > 0) return;
    log_warning(
        "step {} changed nothing: its loss or gradient is not finite, or none of its tokens "
        "can be trained; later ones are counted",
        result_.last.step);
  }

  double now() const { return options_.clock ? options_.clock() : timer_.seconds(); }
  /// Of training, what earlier calls did included.
  double seconds() const { return earlier_seconds_ + now() - began_; }

  /// A first length from a short measurement, which is undone and counts as time used.
  void plan() {
    const double before = now();
    const double rate = trainer_.measure_rate(options_.probe_seconds);
    budget_ = std::max(options_.max_seconds - (now() - before), 1.0);
    trainer_.set_total_steps(
        comm().lead(plan_steps(rate, budget_, trainer_.mean_anchors_per_step())));
    log_info("{:.0f} anchors a second: about {} steps fit in {:.0f} s", rate,
             trainer_.total_steps(), options_.max_seconds);
  }

  /// Steps are slower or faster than the measurement said, and not evenly so.
  void fit_to_time() {
    const int64_t done = trainer_.steps_done();
    if (budget_ <= 0 || done >= trainer_.total_steps()) return;
    const int64_t steps = comm().lead(leads() ? fitted_length() : 0);
    if (steps != trainer_.total_steps()) trainer_.refit_total_steps(steps);
  }

  /// Rank 0's view; a change is written down.
  int64_t fitted_length() {
    const int64_t done = trainer_.steps_done();
    if (seconds() < next_fit_) return trainer_.total_steps();
    next_fit_ = seconds() + kFitShare * budget_;
    const double pace = (now() - began_) / static_cast<double>(done - first_step_);
    const double left = std::max(budget_ - seconds(), 0.0) / std::max(pace, 1e-9);
    const int64_t steps =
        std::max({done + static_cast<int64_t>(std::min(left, 1e12)), done + 1, kMinSteps});
    if (steps == trainer_.total_steps()) return steps;
    record({{"step", done},
            {"schedule",
             {{"total_steps", steps}, {"seconds", seconds()}, {"seconds_per_step", pace}}}});
    return steps;
  }

  void resume(const CheckpointEntry& latest) {
    const LoadedCheckpoint loaded = load_checkpoint(latest.path);
    if (options_.max_seconds > 0) {
      trainer_.set_total_steps(comm().lead(resumed_length(loaded.state)));
    }
    if (latest.step > trainer_.total_steps()) {
      fail("run {}: expected a length of at least the {} done, got {}\n  hint: --steps or --epochs",
           options_.folder.string(), counted(latest.step, "steps"), trainer_.total_steps());
    }
    trainer_.restore(loaded);
    earlier_seconds_ = loaded.state.value("seconds", 0.0);
    if (earlier_seconds_ > 0) anchors_ = loaded.state.value("anchors", int64_t{0});
    const int64_t best_step = loaded.state.value("best_step", int64_t{-1});
    const auto best = best_checkpoint(checkpoints());
    if (best_step >= 0 && (!best || best->step < best_step)) {
      log_warning("run {}: the best checkpoint (step {}) is gone; going on from step {}",
                  options_.folder.string(), best_step, latest.step);
    }
    if (best) {
      result_.best_tau = best->tau;
      best_step_ = best->step;
    }
    log_info("resumed at step {} of {}", trainer_.steps_done(), trainer_.total_steps());
  }

  /// The length that was fitted before; where more time is given than that takes, a longer one.
  int64_t resumed_length(const Json& state) const {
    const auto fitted = state.at("options").at("total_steps").get<int64_t>();
    const double seconds = state.value("seconds", 0.0);
    const auto done = static_cast<double>(state.at("step").get<int64_t>());
    if (seconds <= 0 || done <= 0) return fitted;
    const double reachable = done * std::min(options_.max_seconds / seconds, 1e9);
    const bool longer = reachable > (1 + 2 * kFitShare) * static_cast<double>(fitted);
    return longer ? static_cast<int64_t>(reachable) : fitted;
  }

  static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

  void after_step(bool stop) {
    const int64_t step = trainer_.steps_done();
    const bool last = step >= trainer_.total_steps();
    const bool validates =
        callbacks_.validate && ((due(step, trainer_.options().validate_every) && !stop) || last);
    const bool saves = validates || last || stop || due(step, trainer_.options().save_every);
    if (saves || step == first_step_ + 1) trainer_.expect_equal_weights();
    if (leads() && saves) save(validates);
    if (saves) result_.last_tau = comm().lead(result_.last_tau);  // where the others wait
  }

  void save(bool validates) {
    double tau = -1;
    try {
      if (validates) tau = validate();
    } catch (...) {
      write_checkpoint(tau);  // the steps since the last one are not the validation's fault
      throw;
    }
    write_checkpoint(tau);
  }

  double validate() {
    const Json value = trainer_.validate(callbacks_.validate);
    if (!value.is_object()) return -1;  // stopped within
    const double tau = value.value("tau", -1.0);
    record({{"step", trainer_.steps_done()}, {"validation", value}});
    result_.last_tau = tau;
    if (tau >= result_.best_tau) {
      result_.best_tau = tau;
      best_step_ = trainer_.steps_done();
    }
    return tau;
  }

  void write_checkpoint(double tau) {
    CheckpointContent content = trainer_.checkpoint(tau);
    content.state["best_step"] = best_step_;
    content.state["seconds"] = seconds();
    result_.last_checkpoint = save_checkpoint(checkpoints(), content);
    prune_checkpoints(checkpoints(), trainer_.options().keep_last);
  }

  void finish() {
    result_.steps = trainer_.steps_done();
    result_.finished = trainer_.steps_done() >= trainer_.total_steps();
    result_.seconds = seconds();
    result_.anchors_per_second = static_cast<double>(anchors_) / std::max(result_.seconds, 1e-9);
    if (!leads()) return;
    if (const auto latest = latest_checkpoint(checkpoints())) {
      result_.last_checkpoint = latest->path;
    }
    const auto best = best_checkpoint(checkpoints());
    result_.best_checkpoint = best ? best->path : result_.last_checkpoint;
  }

  Trainer& trainer_;
  const RunOptions& options_;
  const TrainCallbacks& callbacks_;
  std::optional<MetricsFile> metrics_;  // rank 0's
  Timer timer_;
  int64_t best_step_ = -1, first_step_ = 0, anchors_ = 0;
  double began_ = 0, earlier_seconds_ = 0, budget_ = 0, next_fit_ = 0;
  RunResult result_;
};

}  // namespace

std::string RunResult::text() const {
  const std::string tau = last_tau >= 0 ? fmt::format(", tau {:.3f}", last_tau) : "";
  const std::string nothing =
      skipped > 0 ? fmt::format(", {} of them changed nothing", skipped) : "";
  return fmt::format("{}{} in {}, {:.0f} anchors/s{}{}", counted(steps, "steps"), nothing,
                     format_duration(seconds), anchors_per_second, tau,
                     finished ? "" : "; stopped early, the same command goes on");
}

Json RunResult::to_json() const {
  return {{"steps", steps},
          {"finished", finished},
          {"skipped", skipped},
          {"seconds", seconds},
          {"anchors_per_second", anchors_per_second},
          {"tau", last_tau >= 0 ? Json(last_tau) : Json()},  // null: never validated
          {"best_tau", best_tau >= 0 ? Json(best_tau) : Json()},
          {"checkpoint", last_checkpoint.string()}};
}

RunResult run_training(Trainer& trainer, const RunOptions& options,
                       const TrainCallbacks& callbacks) {
  return Run(trainer, options, callbacks).go();
}

}  // namespace dflash::train
