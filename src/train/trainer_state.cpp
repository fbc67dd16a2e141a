// What a trainer keeps beyond a step: checkpoints, undoing a measurement, validation, headers.
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/timer.h"
#include "draft/zlab.h"
#include "nn/compute.h"
#include "train/ranks.h"
#include "train/trainer.h"

namespace dflash::train {
namespace {

std::map<std::string, at::Tensor> copy_of(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : tensors) out[name] = tensor.detach().clone();
  return out;
}

void copy_into(const std::map<std::string, at::Tensor>& live,
               const std::map<std::string, at::Tensor>& saved) {
  const c10::NoGradGuard guard;
  for (const auto& [name, tensor] : live) {
    const auto found = saved.find(name);
    if (found == saved.end() || found->second.sizes() != tensor.sizes()) {
      fail("checkpoint weights: {}: expected a tensor {}, got {}\n  hint: is it the same drafter?",
           name, fmt::join(tensor.sizes(), "x"),
           found == saved.end() ? std::string("none")
                                : fmt::format("{}", fmt::join(found->second.sizes(), "x")));
    }
    at::Tensor(tensor).copy_(found->second);
  }
}

/// Keeps grad mode by scope, and the global generator.
class GeneratorGuard {
 public:
  GeneratorGuard()
      : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~GeneratorGuard() { generator_.set_state(state_); }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

void announce_changes(const Json& before, const Json& now, const std::string& prefix) {
  for (const auto& [key, value] : now.items()) {
    const Json old = before.is_object() && before.contains(key) ? before[key] : Json();
    if (value.is_object()) {
      announce_changes(old, value, prefix + key + ".");
    } else if (old != value) {
      log_warning("resume: {}{} was {}, is {}: not bit-equal to an unbroken run", prefix, key,
                  old.dump(), value.dump());
    }
  }
}

Json identity(const data::Dataset& dataset) {
  return {{"documents", dataset.num_documents()},
          {"fingerprint", data::dataset_fingerprint(dataset)}};
}

/// Error unless `dataset` is the one that a checkpoint names, or begins with it.
void check_dataset(const Json& saved, const data::Dataset& dataset) {
  const Json now = identity(dataset);
  if (saved == now) return;
  const int64_t before = saved.value("documents", int64_t{0});
  std::vector<int64_t> beginning(std::clamp<int64_t>(before, 0, dataset.num_documents()));
  std::iota(beginning.begin(), beginning.end(), int64_t{0});
  if (before == 0 || identity(data::select_documents(dataset, beginning)) != saved) {
    fail(
        "resume: dataset: expected the run's own, {}, got {}\n  hint: give the dataset that the "
        "run began with, or start a new run with --init-from",
        saved.dump(), now.dump());
  }
  log_warning(
      "resume: {} documents were appended to the dataset's {}: not bit-equal to an unbroken run",
      dataset.num_documents() - before, before);
}

Json machine(nn::Compute compute, const Comm& comm) {
  return {{"kernels", nn::kernel_name(compute)},
          {"threads", nn::num_threads()},
          {"ranks", comm.world()}};
}

}  // namespace

double Trainer::measure_rate(double seconds) {
  DF_ASSERT(step_ == 0, "measured at step {}", step_);
  const auto weights = copy_of(parts_.drafter->parameters());
  const auto moments = copy_of(optimizer_.state());
  const Position position = stream_.position();
  const int64_t anchors_before = anchors_done_;
  step();  // the first step also pays for allocations and kernel selection
  const Timer timer;
  int64_t anchors = 0;
  do anchors += step().anchors;
  while (comm().lead(timer.seconds() < seconds));
  const double rate = comm().lead(static_cast<double>(anchors) / timer.seconds());
  copy_into(parts_.drafter->parameters(), weights);
  optimizer_.load_state(moments, 0);
  stream_.seek(position);
  step_ = bad_steps_ = bad_in_a_row_ = 0;
  anchors_done_ = anchors_before;
  return rate;
}

CheckpointContent Trainer::checkpoint(double tau) const {
  CheckpointContent content;
  content.step = step_;
  const Position position = stream_.position();
  content.state = {{"epoch", position.epoch},
                   {"documents", position.documents},
                   {"updates", optimizer_.num_updates()},
                   {"bad_steps", bad_steps_},
                   {"bad_in_a_row", bad_in_a_row_},
                   {"anchors", anchors_done_},
                   {"tau", tau},
                   {"dataset", identity(parts_.dataset)},
                   {"options", options_.to_json()},
                   {"schedule",
                    {{"total_steps", schedule_.total_steps},
                     {"warmup_steps", schedule_.warmup_steps},
                     {"pivot_step", schedule_.pivot_step},
                     {"pivot_t", schedule_.pivot_t}}},
                   {"machine", machine(parts_.drafter->compute(), comm())}};
  content.optimizer = optimizer_.state();
  for (const auto& [name, tensor] : parts_.drafter->parameters()) content.bytes += tensor.nbytes();
  for (const auto& [name, tensor] : content.optimizer) content.bytes += tensor.nbytes();
  content.save_model = [drafter = parts_.drafter](const std::filesystem::path& folder) {
    draft::save_zlab(*drafter, folder, nn::Compute::kF32);  // bit-exact masters
  };
  return content;
}

void Trainer::restore(const LoadedCheckpoint& checkpoint) {
  const Json& state = checkpoint.state;
  check_dataset(state.value("dataset", Json::object()), parts_.dataset);
  const auto saved = draft::load_zlab(checkpoint.model, parts_.drafter->compute());
  copy_into(parts_.drafter->parameters(), saved->parameters());
  optimizer_.load_state(checkpoint.optimizer, state.at("updates").get<int64_t>());
  stream_.seek({state.at("epoch").get<int64_t>(), state.at("documents").get<int64_t>()});
  step_ = state.at("step").get<int64_t>();
  bad_steps_ = state.value("bad_steps", int64_t{0});
  bad_in_a_row_ = state.value("bad_in_a_row", int64_t{0});
  anchors_done_ = state.value("anchors", int64_t{0});
  const Json schedule = state.value("schedule", Json::object());
  const Json before = state.value("options", Json::object());
  if (schedule.value("total_steps", int64_t{-1}) == schedule_.total_steps &&
      before.value("warmup_share", Json()) == options_.to_json()["warmup_share"]) {
    schedule_.warmup_steps = schedule.at("warmup_steps").get<int64_t>();
    schedule_.pivot_step = schedule.at("pivot_step").get<int64_t>();
    schedule_.pivot_t = schedule.at("pivot_t").get<double>();
  }
  announce_changes(before, options_.to_json(), "");
  Json machine_before = {{"ranks", 1}};  // older checkpoints do not say it
  machine_before.update(state.value("machine", Json::object()));
  announce_changes(machine_before, machine(parts_.drafter->compute(), comm()), "");
}

Json Trainer::validate(const std::function<Json(const draft::Drafter&)>& work) {
  const GeneratorGuard generator;
  const c10::NoGradGuard guard;
  parts_.drafter->pack();
  return work(*parts_.drafter);
}

std::string Trainer::loss_rule() const {
  const std::string ranks = comm().alone() ? "" : fmt::format(" over all {} ranks", comm().world());
  return describe_loss(options_.loss) + ranks;
}

void Trainer::expect_equal_ranks(const Json& more) const {
  if (comm().alone()) return;
  Json settings = header();
  settings["dataset"] = identity(parts_.dataset);
  settings["position"] = {step_, stream_.position().epoch, stream_.position().documents};
  settings["more"] = more;
  std::map<std::string, at::Tensor> tensors = optimizer_.state();
  for (const auto& [name, tensor] : parts_.drafter->parameters()) {
    const std::string kind = tensor.requires_grad() ? "trainable" : "frozen";
    settings["parameters"][name] = fmt::format("{} {}", kind, fmt::join(tensor.sizes(), "x"));
    tensors["weight " + name] = tensor;
  }
  tensors["the embedding"] = parts_.table.weight_VD;
  if (parts_.head.id_V.defined()) tensors["the draft vocabulary"] = parts_.head.id_V;
  expect_same_settings(comm(), settings);
  expect_same_tensors(comm(), tensors, "at the start");
}

void Trainer::expect_equal_weights() const {
  expect_same_tensors(comm(), parts_.drafter->parameters(), fmt::format("after step {}", step_));
}

Json Trainer::header() const {
  const auto [matrices, vectors] = optimizer_.element_counts();
  return {{"options", options_.to_json()},
          {"loss_rule", loss_rule()},
          {"head", vocabulary_.method()},
          {"draft_vocabulary", vocabulary_.size()},
          {"compute", nn::compute_name(parts_.drafter->compute())},
          {"machine", machine(parts_.drafter->compute(), comm())},
          {"parameters", {{"muon", matrices}, {"adamw", vectors}}},
          {"documents", parts_.dataset.num_documents()},
          {"anchors_per_epoch", stream_.anchors_per_epoch()},
          {"total_steps", schedule_.total_steps},
          {"warmup_steps", schedule_.warmup_steps}};
}

}  // namespace dflash::train
