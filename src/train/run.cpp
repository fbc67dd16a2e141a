#include "train/run.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/timer.h"

namespace dflash::train {
namespace fs = std::filesystem;
namespace {

/// The loop's own state.
class Run {
 public:
  Run(Trainer& trainer, const RunOptions& options, const TrainCallbacks& callbacks)
      : trainer_(trainer), options_(options), callbacks_(callbacks) {}

  RunResult go() {
    start();
    const Timer timer;
    int64_t anchors = 0;
    bool stop = false;
    MetricsFile metrics(options_.folder / "metrics.jsonl", trainer_.steps_done());
    metrics_ = &metrics;
    while (trainer_.steps_done() < trainer_.total_steps() && !stop) {
      result_.last = trainer_.step();
      anchors += result_.last.anchors;
      metrics.write(result_.last.to_json());
      if (callbacks_.on_step) callbacks_.on_step(result_.last);
      stop = callbacks_.should_stop && callbacks_.should_stop();
      after_step(stop);
    }
    result_.steps = trainer_.steps_done();
    result_.finished = trainer_.steps_done() >= trainer_.total_steps();
    result_.seconds = timer.seconds();
    result_.anchors_per_second = static_cast<double>(anchors) / std::max(result_.seconds, 1e-9);
    finish();
    return result_;
  }

 private:
  fs::path checkpoints() const { return options_.folder / "checkpoints"; }

  void start() {
    make_folder(options_.folder);
    const auto latest = latest_checkpoint(checkpoints());
    if (latest && !options_.resume) {
      fail(
          "run {}: it already has checkpoints (step {})\n  hint: resume it, or choose another "
          "folder",
          options_.folder.string(), latest->step);
    }
    if (latest) resume(*latest);
    if (options_.max_seconds > 0 && trainer_.steps_done() == 0) {
      const double rate = trainer_.measure_rate(options_.probe_seconds);
      const double left = std::max(options_.max_seconds - 2 * options_.probe_seconds, 1.0);
      trainer_.set_total_steps(plan_steps(rate, left, trainer_.mean_anchors_per_step()));
      log_info("{:.0f} anchors a second: {} steps fit in {:.0f} s", rate, trainer_.total_steps(),
               options_.max_seconds);
    }
    write_json(options_.folder / "run.json", {{"format", "dflash-run"},
                                              {"version", 1},
                                              {"config", options_.config},
                                              {"header", trainer_.header()}});
  }

  void resume(const CheckpointEntry& latest) {
    const LoadedCheckpoint loaded = load_checkpoint(latest.path);
    if (options_.max_seconds > 0) {
      trainer_.set_total_steps(loaded.state.at("options").at("total_steps").get<int64_t>());
    }
    trainer_.restore(loaded);
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

  static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

  void after_step(bool stop) {
    const int64_t step = trainer_.steps_done();
    const bool last = step >= trainer_.total_steps();
    const bool validates =
        callbacks_.validate && (due(step, trainer_.options().validate_every) || last) && !stop;
    double tau = -1;
    try {
      if (validates) tau = validate();
    } catch (...) {
      save(tau);  // the steps since the last checkpoint are not the validation's fault
      throw;
    }
    if (validates || last || stop || due(step, trainer_.options().save_every)) save(tau);
  }

  double validate() {
    const Json value = trainer_.validate(callbacks_.validate);
    const double tau = value.value("tau", -1.0);
    metrics_->write({{"step", trainer_.steps_done()}, {"validation", value}});
    result_.last_tau = tau;
    if (tau >= result_.best_tau) {
      result_.best_tau = tau;
      best_step_ = trainer_.steps_done();
    }
    return tau;
  }

  void save(double tau) {
    CheckpointContent content = trainer_.checkpoint(tau);
    content.state["best_step"] = best_step_;
    result_.last_checkpoint = save_checkpoint(checkpoints(), content);
    prune_checkpoints(checkpoints(), trainer_.options().keep_last);
  }

  void finish() {
    if (const auto latest = latest_checkpoint(checkpoints())) {
      result_.last_checkpoint = latest->path;
    }
    const auto best = best_checkpoint(checkpoints());
    result_.best_checkpoint = best ? best->path : result_.last_checkpoint;
  }

  Trainer& trainer_;
  const RunOptions& options_;
  const TrainCallbacks& callbacks_;
  MetricsFile* metrics_ = nullptr;
  int64_t best_step_ = -1;
  RunResult result_;
};

}  // namespace

RunResult run_training(Trainer& trainer, const RunOptions& options,
                       const TrainCallbacks& callbacks) {
  return Run(trainer, options, callbacks).go();
}

}  // namespace dflash::train
