// Several ranks train one drafter: shares of a step, sums, equal bits, equal decisions. Ranks are
// threads here, each with its own copy of the toy world; processes are in tests/cli.
#include "train/ranks.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "base/timer.h"
#include "support/ranks.h"
#include "support/temp_folder.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using toy::World;
using Weights = std::map<std::string, at::Tensor>;

void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(errors[r], "") << "rank " << r;
}

std::unique_ptr<Trainer> trainer_of(World& world, Comm& comm) {
  TrainParts parts = world.parts();
  parts.comm = &comm;
  return std::make_unique<Trainer>(parts, world.options);
}

int64_t cost(const RowStream::Row& row, int64_t block_size) {
  int64_t sum = row.anchors * block_size;
  for (const auto& piece : row.pieces) sum += piece.length;
  return sum;
}

TEST(Deal, SharesAreTheStepsDocumentsAndAboutEqual) {
  World world;
  world.options.anchors_per_step = 40;
  RowStream stream(world.set, world.options);
  for (int64_t turn = 0; turn < 8; ++turn) {
    const auto rows = stream.next_step();
    for (const int ranks : {1, 2, 3, 7}) {
      const auto hands = deal_rows(rows, {.world = ranks, .turn = turn, .block_size = 4});
      ASSERT_EQ(hands.size(), static_cast<size_t>(ranks));
      std::multiset<int64_t> want, got;
      int64_t whole = 0, largest = 0, largest_document = 0, anchors = 0;
      for (const auto& row : rows) {
        for (size_t p = 0; p < row.pieces.size(); ++p) {
          want.insert(row.pieces[p].document);
          largest_document =
              std::max(largest_document, row.pieces[p].length + 4 * row.piece_anchors[p]);
        }
        whole += cost(row, 4);
        anchors += row.anchors;
      }
      for (const auto& hand : hands) {
        int64_t load = 0;
        for (const auto& row : hand) {
          for (const auto& piece : row.pieces) got.insert(piece.document);
          load += cost(row, 4);
          anchors -= row.anchors;
        }
        largest = std::max(largest, load);
      }
      EXPECT_EQ(got, want);
      EXPECT_EQ(anchors, 0);
      EXPECT_LE(largest, whole / ranks + 2 * largest_document) << ranks << " ranks";
    }
  }
}

TEST(Deal, PartsKnowWhereTheirRowBegan) {
  RowStream::Row row{.pieces = {{3, 10}, {5, 10}, {7, 10}, {9, 10}}, .anchors = 8};
  row.piece_anchors = {2, 2, 2, 2};
  row.noise_document = 3;
  const auto hands = deal_rows({row}, {.world = 2, .turn = 1, .block_size = 4});
  ASSERT_EQ(hands[1].size(), 1U);
  ASSERT_EQ(hands[0].size(), 1U);
  EXPECT_EQ(hands[1][0].noise_token, 0);  // turn 1: the first share goes to rank 1
  EXPECT_EQ(hands[0][0].noise_token, 20);
  EXPECT_EQ(hands[0][0].noise_document, 3);
  EXPECT_EQ(hands[0][0].pieces.front().document, 7);
  EXPECT_EQ(hands[0][0].anchors, 4);
}

/// Counts the rows that a rank takes.
class CountingSource : public toy::Source {
 public:
  using toy::Source::Source;
  FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    ++rows;
    return toy::Source::row(pieces);
  }
  int64_t rows = 0;
};

data::Document document(int64_t length, int64_t supervised, uint64_t seed) {
  data::Document out;
  for (int64_t t = 0; t < length; ++t) {
    out.ids.push_back(
        static_cast<int64_t>(uniform_below(toy::kVocab - 1, {seed, static_cast<uint64_t>(t)})));
    out.loss_mask.push_back(t >= length - supervised ? 1 : 0);
  }
  return out;
}

// R-TR-6: one rank has five rows, the other seven, in one step.
TEST(Ranks, FiveAndSevenRowsMakeAsManyCollectives) {
  std::array<int64_t, 2> rows = {}, collectives = {};
  const Timer timer;
  expect_no_errors(run_ranks(2, [&](Comm& comm) {
    World world;
    world.set = {};
    world.set.add(document(18, 11, 1));  // as much work as three of the others
    for (uint64_t d = 2; d < 13; ++d) world.set.add(document(12, 3, d));
    world.options.row_tokens = 18;  // a document a row
    world.options.anchors_per_document = world.options.anchors_per_step = 1000;
    CountingSource source(world.set);
    Trainer trainer({world.set, source, world.model, world.table, world.head, {}, {}, &comm},
                    world.options);
    for (int step = 0; step < 3; ++step) {
      source.rows = 0;
      EXPECT_TRUE(trainer.step().applied);
      EXPECT_EQ(source.rows, (comm.rank() + step) % 2 == 0 ? 5 : 7) << "turns change";
    }
    rows[comm.rank()] = source.rows;
    collectives[comm.rank()] = comm.num_collectives();
  }));
  EXPECT_EQ(rows[0] + rows[1], 12);
  EXPECT_EQ(collectives[0], collectives[1]);
  EXPECT_GT(collectives[0], 0);
  EXPECT_LT(timer.seconds(), 60);
}

// R-TR-7 over ranks: the same tensors are trained, the others stay, and every rank has the same
// bits after every step, under both optimizers.
TEST(Ranks, WeightsAreEqualToTheBitAfterEveryStep) {
  for (const auto kind : {OptimizerKind::kMuon, OptimizerKind::kAdamW}) {
    std::array<std::vector<Weights>, 3> weights;
    expect_no_errors(run_ranks(3, [&](Comm& comm) {
      World world;
      world.options.optimizer.kind = kind;
      const at::Tensor table = world.table.weight_VD.clone();
      const at::Tensor head = world.head.linear.weight.clone();
      const auto before = toy::copy_weights(*world.model);
      const auto trainer = trainer_of(world, comm);
      trainer->expect_equal_ranks({});
      for (int step = 0; step < 3; ++step) {
        trainer->step();
        trainer->expect_equal_weights();
        weights[comm.rank()].push_back(toy::copy_weights(*world.model));
      }
      EXPECT_TRUE(at::equal(table, world.table.weight_VD));
      EXPECT_TRUE(at::equal(head, world.head.linear.weight));
      for (const auto& [name, tensor] : world.model->parameters()) {
        EXPECT_FALSE(at::equal(tensor.detach(), before.at(name))) << name << " did not move";
      }
    }));
    for (int step = 0; step < 3; ++step) {
      for (int r = 1; r < 3; ++r) toy::expect_equal(weights[r][step], weights[0][step]);
    }
  }
}

// The same documents a step and, up to rounding, the same curve as one process, with noise and with
// rows that are cut between ranks. f32: ten steps amplify a rounding of 6e-8 about a thousandfold
// (curve_test.cpp).
TEST(Ranks, TrainAsOneProcessDoes) {
  const auto prepare = [](World& world) {
    world.options.noise = {.kind = NoiseKind::kGaussian, .scale = 0.2, .anneal = true};
    world.options.total_steps = 10;
  };
  World alone;
  prepare(alone);
  const auto reference = alone.trainer();
  std::vector<StepMetrics> want;
  for (int step = 0; step < 10; ++step) want.push_back(reference->step());
  for (const int ranks : {2, 3}) {
    expect_no_errors(run_ranks(ranks, [&](Comm& comm) {
      World world;
      prepare(world);
      const auto trainer = trainer_of(world, comm);
      for (int step = 0; step < 10; ++step) {
        const StepMetrics got = trainer->step();
        EXPECT_NEAR(got.loss, want[step].loss, 1e-4 * want[step].loss) << "step " << step;
        EXPECT_NEAR(got.grad_norm, want[step].grad_norm, 4e-4 * want[step].grad_norm);
        EXPECT_EQ(got.epoch, want[step].epoch);
        EXPECT_EQ(got.documents, want[step].documents);
        EXPECT_EQ(got.tokens, want[step].tokens);
        EXPECT_EQ(got.anchors, want[step].anchors);
        EXPECT_EQ(got.trained_slots, want[step].trained_slots);
        EXPECT_EQ(got.slots.num_blocks(), want[step].slots.num_blocks());
      }
      for (const auto& [name, tensor] : world.model->parameters()) {
        const at::Tensor gap = tensor.detach() - alone.model->parameters().at(name).detach();
        EXPECT_LE(gap.abs().max().item<double>(), 1e-3) << name;
      }
      EXPECT_THAT(trainer->loss_rule(), HasSubstr("over all"));
    }));
  }
}

// TR-02: a step of one document leaves two of three ranks without rows.
TEST(Ranks, RanksWithoutRowsJoinWithZeros) {
  World alone;
  alone.options.row_tokens = 20;
  alone.options.anchors_per_step = 1;
  const auto reference = alone.trainer();
  const StepMetrics first = reference->step(), second = reference->step();
  expect_no_errors(run_ranks(3, [&](Comm& comm) {
    World world;
    world.options = alone.options;
    const auto trainer = trainer_of(world, comm);
    EXPECT_EQ(trainer->step().loss, first.loss) << "one rank did it all";
    const StepMetrics got = trainer->step();
    EXPECT_EQ(got.loss, second.loss);
    EXPECT_EQ(got.grad_norm, second.grad_norm);
    EXPECT_TRUE(got.applied);
    trainer->expect_equal_weights();
  }));
}

// A document that one rank alone meets ends the run for all, or is left out by all.
TEST(Ranks, BadFeaturesAreJudgedTogether) {
  expect_no_errors(run_ranks(2, [&](Comm& comm) {
    World world;
    world.source.bad = {3};
    const auto trainer = trainer_of(world, comm);
    while (trainer->steps_done() < trainer->total_steps()) {
      EXPECT_TRUE(std::isfinite(trainer->step().loss));
    }
    trainer->expect_equal_weights();
  }));
  std::array<std::atomic<int64_t>, 2> steps = {};
  const auto errors = run_ranks(2, [&](Comm& comm) {
    World world;
    for (int64_t d = 0; d < 8; ++d) world.source.bad.insert(d);
    const auto trainer = trainer_of(world, comm);
    while (trainer->steps_done() < trainer->total_steps()) {
      trainer->step();
      ++steps[comm.rank()];
    }
  });
  EXPECT_EQ(steps[0], steps[1]);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("are not finite"));
}

// What is not finite on one rank is skipped by all; all give up after the same step.
TEST(Ranks, SkipAndGiveUpTogether) {
  std::array<std::vector<bool>, 2> applied;
  const auto errors = run_ranks(2, [&](Comm& comm) {
    World world;
    world.options.max_bad_steps = 3;
    const auto trainer = trainer_of(world, comm);
    trainer->step();
    if (comm.rank() == 1) {
      const c10::NoGradGuard guard;
      at::Tensor(world.model->parameters().at("norm.weight"))[0] = NAN;
    }
    for (int i = 0; i < 10; ++i) applied[comm.rank()].push_back(trainer->step().applied);
  });
  EXPECT_EQ(applied[0], (std::vector<bool>{false, false}));
  EXPECT_EQ(applied[1], applied[0]);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("3 steps in a row"));
}

TEST(Ranks, WhatDiffersIsNamed) {  // TR-04, CK-03
  const auto errors_of = [](const std::function<void(World&)>& change) {
    return run_ranks(2, [&](Comm& comm) {
      World world;
      if (comm.rank() == 1) change(world);
      trainer_of(world, comm)->expect_equal_ranks({});
    });
  };
  const std::pair<std::function<void(World&)>, const char*> cases[] = {
      {[](World& world) { world.options.seed = 5; }, "options/seed: rank 0 has 11, rank 1 has 5"},
      {[](World& world) { world.options.optimizer.lr = 0.5; }, "options/optimizer/lr: rank 0 has"},
      {[](World& world) { world.set.loss_mask[4] ^= 1; }, "dataset/fingerprint: rank 0 has"},
      {[](World& world) { world.set = toy::dataset(11); }, "rank 0 has"},
      {[](World& world) { world.table.weight_VD[3][1] += 1; }, "the embedding of rank 1"},
      {[](World& world) {
         const c10::NoGradGuard guard;
         at::Tensor(world.model->parameters().at("fc.weight"))[0][0] += 1e-7;
       },
       "weight fc.weight of rank 1 is not that of rank 0"}};
  for (const auto& [change, expected] : cases) {
    for (const std::string& error : errors_of(change)) EXPECT_THAT(error, HasSubstr(expected));
  }
  expect_no_errors(errors_of([](World&) {}));
}

TEST(Ranks, AMeasurementLeavesNoTraceAndIsRank0s) {
  std::array<double, 2> rates = {};
  expect_no_errors(run_ranks(2, [&](Comm& comm) {
    World plain, measured;
    const auto a = trainer_of(plain, comm), b = trainer_of(measured, comm);
    rates[comm.rank()] = b->measure_rate(comm.rank() == 0 ? 0.05 : 100);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(a->step().loss, b->step().loss);
    toy::expect_equal(toy::copy_weights(*measured.model), toy::copy_weights(*plain.model));
  }));
  EXPECT_EQ(rates[0], rates[1]);
  EXPECT_GT(rates[0], 0);
}

}  // namespace
}  // namespace dflash::train
