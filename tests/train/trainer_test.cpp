// The step and the run around it, on the toy world of toy.h.
#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"
#include "train/run.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

using toy::World;

TEST(Trainer, LossFallsAndOnlyTheDrafterChanges) {  // R-TR-7
  World world;
  world.options.epochs = 30;
  const at::Tensor table = world.table.weight_VD.clone(), head = world.head.linear.weight.clone();
  const auto before = toy::copy_weights(*world.model);
  const auto trainer = world.trainer();
  const double first = trainer->step().loss;
  trainer->step();
  trainer->step();
  EXPECT_TRUE(table.equal(world.table.weight_VD));
  EXPECT_TRUE(head.equal(world.head.linear.weight));
  for (const auto& [name, tensor] : world.model->parameters()) {
    EXPECT_FALSE(tensor.detach().equal(before.at(name))) << name << " did not move";
    EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  }
  StepMetrics last;
  while (trainer->steps_done() < trainer->total_steps()) last = trainer->step();
  EXPECT_LT(last.loss, 0.7 * first);
  EXPECT_GT(last.slots.accuracy(), 0.3);
}

// R-TR-4, R-LOSS-3, LOSS-08: how a step is cut into passes does not matter.
TEST(Trainer, PassesDoNotMatter) {
  World whole, split;
  split.options.anchors_per_pass = 2;
  const StepMetrics a = whole.trainer()->step(), b = split.trainer()->step();
  EXPECT_EQ(a.trained_slots, b.trained_slots);
  EXPECT_NEAR(a.loss, b.loss, 1e-5);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4 * a.grad_norm);
  EXPECT_EQ(a.slots.to_json(), b.slots.to_json());
}

// R-LOSS-4, R-CAP-6: a step without anything to train changes nothing and is no failure.
TEST(Trainer, NothingToTrainIsSafe) {
  World world;
  world.options.anchors_per_step = 1;
  world.options.max_bad_steps = 1;
  const auto trainer = world.trainer();
  RowStream stream(world.set, world.options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(trainer->step().applied);
    stream.next_step();
  }
  for (const auto& row : stream.next_step()) {
    for (const auto& piece : row.pieces) world.source.bad.insert(piece.document);
  }
  const auto weights = toy::copy_weights(*world.model);
  const StepMetrics empty = trainer->step();
  EXPECT_FALSE(empty.applied);
  EXPECT_EQ(empty.loss, 0.0);
  toy::expect_equal(toy::copy_weights(*world.model), weights);
}

// R-CAP-6
TEST(Trainer, NonFiniteFeaturesAreLeftOut) {
  World world;
  world.source.bad = {3};
  const auto trainer = world.trainer();
  while (trainer->steps_done() < trainer->total_steps()) {
    const StepMetrics metrics = trainer->step();
    EXPECT_TRUE(std::isfinite(metrics.loss));
  }
  World unlucky;  // the first row has a bad document; that is no share yet
  unlucky.source.bad = {RowStream(unlucky.set, unlucky.options).next_step()[0].pieces[0].document};
  const auto going_on = unlucky.trainer();
  EXPECT_NO_THROW(while (going_on->steps_done() < going_on->total_steps()) going_on->step());
  for (auto part : {&toy::Source::bad, &toy::Source::bad_last}) {
    World most;
    for (int64_t d = 0; d < 8; ++d) (most.source.*part).insert(d);
    const auto failing = most.trainer();
    EXPECT_THROW(while (failing->steps_done() < failing->total_steps()) failing->step(), Error);
  }
}

TEST(Trainer, GivesUpAfterSeveralBadSteps) {
  World world;
  world.options.max_bad_steps = 3;
  const auto trainer = world.trainer();
  trainer->step();
  {
    const c10::NoGradGuard guard;
    at::Tensor(world.model->parameters().at("norm.weight"))[0] = NAN;
  }
  EXPECT_FALSE(trainer->step().applied);
  EXPECT_FALSE(trainer->step().applied);
  EXPECT_THROW(trainer->step(), Error);
}

TEST(Trainer, SoftAndDpaceLossesTrain) {
  for (const char* loss : {"kl", "0.5*tv+0.5*rkl", "lk"}) {
    World world;
    world.options.loss.terms = parse_loss(loss);
    world.options.epochs = 10;
    const auto trainer = world.trainer();
    const double first = trainer->step().loss;
    double last = first;
    while (trainer->steps_done() < trainer->total_steps()) last = trainer->step().loss;
    EXPECT_LT(last, first) << loss;
  }
  World world;
  world.options.loss.slot_weights = SlotWeights::kDpace;
  world.options.epochs = 10;
  const auto trainer = world.trainer();
  const double first = trainer->step().loss;
  double last = first;
  while (trainer->steps_done() < trainer->total_steps()) last = trainer->step().loss;
  EXPECT_LT(last, first);
}

TEST(Trainer, PartsThatDoNotFitAreErrors) {
  World world;
  world.options.loss.terms = parse_loss("kl");
  TrainParts parts = world.parts();
  parts.final_norm = {};
  EXPECT_THROW(Trainer(parts, world.options), Error);
  World other;
  other.head.linear = nn::Linear(toy::normal({toy::kVocab, 8}, 2), {}, other.compute);
  EXPECT_THROW(other.trainer(), Error);
  World options;
  options.options.anchors_per_step = 0;
  EXPECT_THROW(options.trainer(), Error);
}

TEST(Trainer, MeasuringTheRateLeavesNoTrace) {
  World plain, measured;
  const auto a = plain.trainer(), b = measured.trainer();
  EXPECT_GT(b->measure_rate(0.01), 0.0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a->step().loss, b->step().loss);
  toy::expect_equal(toy::copy_weights(*measured.model), toy::copy_weights(*plain.model));
}

// R-TR-8: evaluation in the middle changes nothing, and may use grad mode and random numbers.
TEST(Trainer, ValidationLeavesNoTrace) {
  World plain, validated;
  const auto a = plain.trainer(), b = validated.trainer();
  at::manual_seed(3);
  for (int i = 0; i < 4; ++i) {
    a->step();
    b->step();
    if (i != 1) continue;
    const at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
    b->validate([](const draft::Drafter& model) {
      EXPECT_FALSE(c10::GradMode::is_enabled());
      at::rand({5});
      EXPECT_NE(model.new_context(), nullptr);
      return Json{{"tau", 2.0}};
    });
    EXPECT_TRUE(before.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
    EXPECT_TRUE(c10::GradMode::is_enabled());
  }
  toy::expect_equal(toy::copy_weights(*validated.model), toy::copy_weights(*plain.model));
}

// R-CK-1, for both optimizers, over distinct batches and an epoch's end.
TEST(Run, ResumedEqualsUnbroken) {
  for (const auto kind : {OptimizerKind::kMuon, OptimizerKind::kAdamW}) {
    const testing::TempFolder folder;
    World unbroken, first, second;
    for (World* world : {&unbroken, &first, &second}) {
      world->options.optimizer.kind = kind;
      world->options.total_steps = 10;
      world->options.save_every = 4;
      world->options.noise = {.kind = NoiseKind::kGaussian, .scale = 0.1, .anneal = true};
    }
    const auto a = unbroken.trainer();
    std::vector<double> losses;
    while (a->steps_done() < 10) losses.push_back(a->step().loss);

    int steps = 0;
    TrainCallbacks stop;
    stop.should_stop = [&] { return ++steps == 6; };
    const RunResult broken = run_training(*first.trainer(), {.folder = folder.path()}, stop);
    EXPECT_FALSE(broken.finished);
    EXPECT_EQ(broken.steps, 6);
    second.model->parameters();
    const auto b = second.trainer();
    const RunResult resumed = run_training(*b, {.folder = folder.path(), .resume = true}, {});
    EXPECT_TRUE(resumed.finished);
    toy::expect_equal(toy::copy_weights(*second.model), toy::copy_weights(*unbroken.model));
    CheckpointContent want = a->checkpoint(-1), got = b->checkpoint(-1);
    toy::expect_equal(got.optimizer, want.optimizer);
    EXPECT_EQ(got.state, want.state);
    // One line a step, none twice, the same losses.
    std::istringstream lines(read_text(folder.path() / "metrics.jsonl"));
    int64_t step = 0;
    for (std::string line; std::getline(lines, line); ++step) {
      EXPECT_EQ(Json::parse(line)["step"], step + 1);
      EXPECT_EQ(Json::parse(line)["loss"].get<double>(), losses.at(step));
    }
    EXPECT_EQ(step, 10);
  }
}

TEST(Run, ResumesOnItsOwnDatasetOnly) {
  const testing::TempFolder folder;
  World world;
  world.options.total_steps = 4;
  int steps = 0;
  TrainCallbacks stop;
  stop.should_stop = [&] { return ++steps == 2; };
  run_training(*world.trainer(), {.folder = folder.path()}, stop);
  const auto resumed = [&](const data::Dataset& set) {
    World other;
    other.options.total_steps = 4;
    other.set = set;
    return run_training(*other.trainer(), {.folder = folder.path(), .resume = true}, {}).steps;
  };
  data::Dataset changed = world.set, fewer = toy::dataset(11);
  changed.loss_mask[4] ^= 1;
  for (const auto& set : {changed, fewer}) {
    EXPECT_THAT(testing::error_of<Error>([&] { resumed(set); }), ::testing::HasSubstr("dataset"));
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resumed(toy::dataset(14)), 4);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("2 documents were appended"));
}

TEST(Run, ValidatesSavesBestAndRefusesToOverwrite) {
  const testing::TempFolder folder;
  World world;
  world.options.total_steps = 6;
  world.options.validate_every = 2;
  world.options.save_every = 0;
  world.options.keep_last = 1;
  double tau = 0;
  TrainCallbacks callbacks;
  callbacks.validate = [&](const draft::Drafter&) {
    tau = tau == 0 ? 3.0 : tau - 0.5;
    return Json{{"tau", tau}};
  };
  const RunResult result = run_training(*world.trainer(), {.folder = folder.path()}, callbacks);
  EXPECT_EQ(result.best_tau, 3.0);
  EXPECT_EQ(result.last_tau, 2.0);
  EXPECT_EQ(result.best_checkpoint.filename(), "step-000002");
  EXPECT_EQ(result.last_checkpoint.filename(), "step-000006");
  EXPECT_EQ(list_checkpoints(folder.path() / "checkpoints").size(), 2U);
  EXPECT_TRUE(read_json(folder.path() / "run.json").contains("header"));
  World again;
  EXPECT_THROW(run_training(*again.trainer(), {.folder = folder.path()}, {}), Error);
}

TEST(Run, TimeSetsTheSteps) {
  const testing::TempFolder folder;
  World world;
  const auto trainer = world.trainer();
  TrainCallbacks callbacks;
  int64_t planned = 0;
  callbacks.should_stop = [&] { return (planned = trainer->total_steps()) > 0; };
  run_training(*trainer, {.folder = folder.path(), .max_seconds = 2, .probe_seconds = 0.05},
               callbacks);
  EXPECT_GE(planned, 10);
  EXPECT_EQ(trainer->options().total_steps, planned);
}

// More time than the fitted length takes is used from the first step on.
TEST(Run, MoreTimeMakesAStoppedRunLonger) {
  const testing::TempFolder folder;
  double time = 0;
  World first, second;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepMetrics&) { time += 1; };
  RunOptions options{.folder = folder.path(), .max_seconds = 40, .probe_seconds = 0.05};
  options.clock = [&] { return time; };
  callbacks.should_stop = [&] { return time >= 39; };
  run_training(*first.trainer(), options, callbacks);
  callbacks.should_stop = {};
  options.resume = true;
  options.max_seconds = 120;
  const RunResult whole = run_training(*second.trainer(), options, callbacks);
  EXPECT_NEAR(whole.seconds, 120, 5);
}

TEST(Run, AStopAtTheLastStepStillValidates) {
  const testing::TempFolder folder;
  World world;
  world.options.total_steps = 3;
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  callbacks.validate = [](const draft::Drafter&) { return Json{{"tau", 2.0}}; };
  RunOptions options{.folder = folder.path()};
  for (int64_t step = 1; step <= 3; ++step) {
    const RunResult part = run_training(*world.trainer(), options, callbacks);
    EXPECT_EQ(part.steps, step);
    EXPECT_EQ(part.last_tau, step == 3 ? 2.0 : -1.0);
    options.resume = true;
  }
}

// The measurement before a run may be far off; the end comes in time all the same.
TEST(Run, StepsFollowTheRealPace) {
  for (const double seconds_per_step : {0.5, 4.0}) {
    const testing::TempFolder folder;
    double time = 0;
    World first, second;
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const StepMetrics&) { time += seconds_per_step; };
    RunOptions options{.folder = folder.path(), .max_seconds = 100, .probe_seconds = 0.05};
    options.clock = [&] { return time; };
    callbacks.should_stop = [&] { return time >= 60; };
    const RunResult part = run_training(*first.trainer(), options, callbacks);
    EXPECT_FALSE(part.finished);
    EXPECT_NEAR(part.seconds, 60, seconds_per_step);
    callbacks.should_stop = {};
    options.resume = true;
    time += 1000;  // between two calls nobody trains
    const auto trainer = second.trainer();
    const RunResult whole = run_training(*trainer, options, callbacks);
    EXPECT_TRUE(whole.finished);
    EXPECT_NEAR(whole.seconds, 100, 5) << seconds_per_step;
    EXPECT_EQ(whole.steps, trainer->total_steps());
    EXPECT_NEAR(whole.seconds / static_cast<double>(whole.steps), seconds_per_step, 1e-6);
    EXPECT_LT(whole.last.rate_factor, 0.1);
    int64_t decided = 0;
    std::istringstream lines(read_text(folder.path() / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      if (json.contains("schedule")) decided = json["schedule"]["total_steps"];
    }
    EXPECT_EQ(decided, whole.steps);
  }
}

}  // namespace
}  // namespace dflash::train
