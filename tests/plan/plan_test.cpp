// Counts of operations against ones made by hand, the planner's arithmetic, and its answers.
#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/operations.h"

namespace dflash::plan {
namespace {

using ::testing::HasSubstr;

DrafterShape small_drafter() {
  return {.num_layers = 2,
          .block_size = 4,
          .num_taps = 3,
          .hidden_size = 10,
          .target_hidden_size = 7,
          .intermediate_size = 20,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 5,
          .vocab_size = 100};
}

TargetShape small_target() {
  return {.family = "llama",
          .hidden_size = 7,
          .num_layers = 6,
          .vocab_size = 100,
          .q_width = 8,
          .kv_width = 4,
          .intermediate_size = 16,
          .attention_blocks = 6,
          .block_parameters = 6000,
          .active_parameters = 6000,
          .tied_embeddings = true};
}

Request request(Precision precision, Optimizer optimizer) {
  Request out{.target = small_target(),
              .drafter = small_drafter(),
              .step = {},
              .rates = {.gflops = 1, .gbs = 1},
              .program_bytes = 1000};
  out.step.precision = precision;
  out.step.optimizer = optimizer;
  return out;
}

int64_t bytes_of(const MemoryPlan& plan, const std::string& what) {
  for (const Term& term : plan.terms) {
    if (term.what == what) return term.bytes;
  }
  return -1;
}

TEST(Plan, ParametersOfADrafter) {
  // fc 10 x 21; a layer: q 20 x 10, k and v 10 x 10, o 10 x 20, gate, up and down 20 x 10.
  EXPECT_EQ(small_drafter().matrices(), 210 + 2 * (200 + 100 + 100 + 200 + 600));
  EXPECT_EQ(small_drafter().vectors(), 2 * 10 + 2 * (2 * 10 + 2 * 5));
}

/// A walk over every multiplication of `rows` rows by a matrix.
double counted(int64_t rows, int64_t out, int64_t in) {
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) sum += 2.0 * static_cast<double>(in);
  }
  return sum;
}

TEST(Plan, OperationsAreThoseOfTheProducts) {
  const DrafterShape d = small_drafter();
  const int64_t tokens = 11, anchors = 3, rows = 12;
  const double blocks = 2 * (counted(rows, 20 + 20, 10) + counted(rows, 10, 20) +
                             counted(rows, 40, 10) + counted(rows, 10, 20));
  const double context = counted(tokens, 10, 21) + 2 * counted(tokens, 20, 10);
  EXPECT_EQ(total_operations(drafter_products(d, tokens, anchors)), blocks + context);
  // Backward: inputs and weights of all, but no gradient of the features.
  EXPECT_EQ(total_operations(drafter_gradients(d, tokens, anchors)),
            2 * (blocks + context) - counted(tokens, 10, 21));
  EXPECT_EQ(head_operations(d, 9), 2 * counted(9, 100, 10));
  // Scores and means: 2 layers, 12 rows, 4 heads, 6 context keys and 4 of the block.
  EXPECT_EQ(block_attention_operations(d, anchors, 6), 2 * 2 * counted(12 * 4, 10, 5));
  EXPECT_EQ(target_operations(small_target(), 5, 0), 5 * 2.0 * (6000 + 700));
}

TEST(Plan, NewtonSchulzCountsTheShortSide) {
  DrafterShape one = small_drafter();
  one.num_layers = 0;
  // Half of gram 10 x 10 x 21 and of each square product, the whole product with the matrix.
  const double gram = counted(10, 21, 10) / 2, square = counted(10, 10, 10) / 2;
  const double apply = counted(10, 21, 10);
  EXPECT_EQ(muon_operations(one, 1), gram + square + apply);
  EXPECT_EQ(muon_operations(one, 2), gram + 4 * square + apply);
  EXPECT_EQ(muon_operations(one, 5), 3 * gram + 9 * square + 3 * apply);
}

TEST(Plan, WeightsAndMomentsFollowTheOptimizer) {
  const int64_t matrices = small_drafter().matrices(), vectors = small_drafter().vectors();
  const auto muon = make_plan(request(Precision::kBF16, Optimizer::kMuon)).memory;
  const auto adamw = make_plan(request(Precision::kF32, Optimizer::kAdamW)).memory;
  EXPECT_EQ(bytes_of(muon, "drafter"), 4 * (matrices + vectors));
  EXPECT_EQ(bytes_of(muon, "Muon's momentum"), 4 * matrices + 8 * vectors);
  EXPECT_EQ(bytes_of(adamw, "AdamW's moments"), 8 * (matrices + vectors));
  EXPECT_EQ(bytes_of(muon, "target, packed for its kernels"), 2 * 6000);
  EXPECT_EQ(bytes_of(adamw, "target, packed for its kernels"), 4 * 6000);
  EXPECT_EQ(bytes_of(adamw, "head, packed twice for scores and means"), -1);
  EXPECT_EQ(bytes_of(muon, "the program and LibTorch"), 1000);
}

TEST(Plan, ThePeakIsTheFullestMoment) {
  const MemoryPlan plan = make_plan(request(Precision::kBF16, Optimizer::kMuon)).memory;
  int64_t fullest = 0;
  for (const Phase phase : kPhases) {
    int64_t sum = 0;
    for (const Term& term : plan.terms) {
      if ((term.phases & phase) && !term.reclaimable) sum += term.bytes;
    }
    fullest = std::max(fullest, sum);
    if (phase == plan.peak_phase) {
      EXPECT_EQ(sum, plan.needed_bytes);
    }
  }
  EXPECT_EQ(fullest, plan.needed_bytes);
  EXPECT_EQ(plan.needed_bytes, plan.peak_bytes);  // nothing is mapped
}

TEST(Plan, MappedFilesAreShownButNotNeeded) {
  Request mapped = request(Precision::kBF16, Optimizer::kMuon);
  const int64_t before = make_plan(mapped).memory.needed_bytes;
  mapped.target.file_bytes = 12345;
  const MemoryPlan plan = make_plan(mapped).memory;
  EXPECT_EQ(plan.needed_bytes, before);
  EXPECT_EQ(plan.peak_bytes, before + 12345);
}

TEST(Plan, MoreOfAnythingNeedsMore) {
  const Request base = request(Precision::kBF16, Optimizer::kMuon);
  const int64_t needed = make_plan(base).memory.needed_bytes;
  const auto grows = [&](const char* what, const auto& change) {
    Request more = base;
    change(more);
    EXPECT_GT(make_plan(more).memory.needed_bytes, needed) << what;
  };
  grows("layers", [](Request& r) { r.drafter.num_layers *= 2; });
  grows("block", [](Request& r) { r.drafter.block_size *= 2; });
  grows("taps", [](Request& r) { r.drafter.num_taps *= 2; });
  grows("vocabulary", [](Request& r) { r.drafter.vocab_size *= 2; });
  grows("tokens", [](Request& r) { r.step.row_tokens *= 2; });
  grows("anchors", [](Request& r) { r.step.pass_anchors *= 2; });
  grows("adamw", [](Request& r) { r.step.optimizer = Optimizer::kAdamW; });
  grows("f32", [](Request& r) { r.step.precision = Precision::kF32; });
}

TEST(Plan, WhatDoesNotFitIsToldWhatToChange) {
  Request large = request(Precision::kF32, Optimizer::kAdamW);
  const int64_t needed = make_plan(large).memory.needed_bytes;
  large.memory_bytes = needed;
  EXPECT_TRUE(make_plan(large).fits());
  EXPECT_THAT(make_plan(large).text(), HasSubstr("fits: "));
  large.memory_bytes = needed - 1;
  const Plan plan = make_plan(large);
  EXPECT_FALSE(plan.fits());
  ASSERT_GE(plan.changes.size(), 3U);
  for (const Change& change : plan.changes) EXPECT_LT(change.needed_bytes, needed);
  EXPECT_EQ(plan.changes.back().option, "all of these");
  for (const Change& change : plan.changes) {
    EXPECT_GE(change.needed_bytes, plan.changes.back().needed_bytes);
  }
  EXPECT_THAT(plan.text(), HasSubstr("does not fit: "));
  EXPECT_EQ(plan.to_json()["fits"], false);
}

TEST(Plan, TimeIsOperationsOverRates) {
  Request r = request(Precision::kBF16, Optimizer::kMuon);
  const double slow = make_plan(r).seconds();
  r.rates = {.gflops = 2, .gbs = 2};
  EXPECT_NEAR(make_plan(r).seconds(), slow / 2, 1e-12 * slow);
  r.step.live_target = false;
  EXPECT_LT(make_plan(r).seconds(), slow / 2);
}

TEST(Plan, SizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("96GB"), 96000000000);
  EXPECT_EQ(parse_bytes("1.5 gib"), 1610612736);
  EXPECT_EQ(parse_bytes("800M"), 800000000);
  EXPECT_EQ(parse_bytes("5000"), 5000);
  for (const char* bad : {"", "GB", "96 apples", "-1GB", "nan", "1e300GB", "0"}) {
    EXPECT_THROW(parse_bytes(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace dflash::plan
