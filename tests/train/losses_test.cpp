// Vocabulary softmax and losses against plain f64 twins, finite differences, and the recipes.
#include "train/losses.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/compute.h"

namespace dflash::train {
namespace {

nn::Head make_head(int64_t size, int64_t width, nn::Compute compute, double scale = 0.3) {
  at::Tensor weight = at::randn({size, width}, at::kFloat) * scale;
  if (compute == nn::Compute::kBF16) weight = weight.to(at::kBFloat16);
  nn::Head head;
  head.linear = nn::Linear(weight, {}, compute);
  head.num_ids = size;
  return head;
}

struct Case {
  LossRows rows;
  nn::Head head;
};

Case make_case(int64_t rows, int64_t size, int64_t width, nn::Compute compute) {
  at::manual_seed(static_cast<uint64_t>(rows * 1000 + size + width));
  Case c;
  c.head = make_head(size, width, compute);
  c.rows.hidden_MD = at::randn({rows, width}, at::kFloat);
  c.rows.teacher_MD = c.rows.hidden_MD + 0.5 * at::randn({rows, width}, at::kFloat);
  c.rows.label_M = at::randint(size, {rows}, at::kLong);
  return c;
}

/// Loss of every row, straight from the formulas, in f64. `teacher_w`: the teacher's head.
at::Tensor plain_loss(LossKind kind, const LossRows& rows, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& teacher_w) {
  const at::Tensor log_q = at::log_softmax(at::matmul(x, w.t()), -1), q = log_q.exp();
  if (kind == LossKind::kCrossEntropy) {
    return -log_q.gather(-1, rows.label_M.unsqueeze(-1)).squeeze(-1);
  }
  const at::Tensor log_p =
      at::log_softmax(at::matmul(rows.teacher_MD.to(at::kDouble), teacher_w.t()), -1);
  const at::Tensor p = log_p.exp(), m = (p + q) / 2;
  const at::Tensor overlap = at::minimum(p, q).sum(-1);
  const at::Tensor kl = (p * (log_p - log_q)).sum(-1);
  switch (kind) {
    case LossKind::kKl:
      return kl;
    case LossKind::kReverseKl:
      return (q * (log_q - log_p)).sum(-1);
    case LossKind::kJsd:
      return 0.5 * (p * (log_p - m.log()) + q * (log_q - m.log())).sum(-1);
    case LossKind::kTv:
      return 1 - overlap;
    case LossKind::kNla:
      return -overlap.clamp_min(1e-5).log();
    default: {
      const at::Tensor lambda = (-3 * overlap.detach()).exp();
      return lambda * kl + (1 - lambda) * (1 - overlap);
    }
  }
}

struct Plain {
  at::Tensor loss, grad;
};

Plain plain(LossKind kind, const Case& c, const nn::Head& teacher_head) {
  const c10::AutoGradMode on(true);
  at::Tensor x = c.rows.hidden_MD.to(at::kDouble).requires_grad_(true);
  const at::Tensor loss = plain_loss(kind, c.rows, x, c.head.linear.weight.to(at::kDouble),
                                     teacher_head.linear.weight.to(at::kDouble));
  loss.sum().backward();
  return {loss.detach(), x.grad()};
}

Plain plain(LossKind kind, const Case& c) {
  return plain(kind, c, c.head);
}

void expect_near(const at::Tensor& got, const at::Tensor& want, double bound, const char* what) {
  const at::Tensor gap = (got.to(at::kDouble) - want.to(at::kDouble)).abs().flatten();
  if (gap.numel() == 0) return;
  const auto worst = gap.argmax().item<int64_t>();
  EXPECT_LE(gap[worst].item<double>(), bound)
      << what << " at " << worst << ": got " << got.flatten()[worst].item<double>() << ", want "
      << want.flatten()[worst].item<double>();
}

const LossKind kAll[] = {LossKind::kCrossEntropy, LossKind::kKl, LossKind::kReverseKl,
                         LossKind::kJsd,          LossKind::kTv, LossKind::kNla,
                         LossKind::kLkHybrid};

TEST(Losses, EqualPlainTwinF32) {
  const int64_t shapes[][3] = {{1, 5, 7}, {7, 300, 32}, {65, 513, 33}, {300, 130, 16}};
  for (const auto& s : shapes) {
    const Case c = make_case(s[0], s[1], s[2], nn::Compute::kF32);
    const Vocabulary vocabulary(c.head, nn::Compute::kF32);
    for (const LossKind kind : kAll) {
      SCOPED_TRACE(fmt::format("{} M={} V={} D={}", loss_name(kind), s[0], s[1], s[2]));
      LossOptions options;
      options.terms = {{kind, 1.0}};
      const RowLosses got = row_losses(vocabulary, options, c.rows);
      const Plain want = plain(kind, c);
      // c = 32 roundings of sums whose terms are O(1), relative to values up to e^|logit|.
      expect_near(got.loss_M, want.loss, 3e-5, "loss");
      expect_near(got.grad_MD, want.grad, 3e-5, "grad");
    }
  }
}

// A drafter with an own head: the teacher's logits come from the target's, of another width even.
TEST(Losses, TeacherWithAnotherHead) {
  const Case c = make_case(33, 70, 24, nn::Compute::kF32);
  const nn::Head target = make_head(70, 40, nn::Compute::kF32);
  const Vocabulary vocabulary(c.head, nn::Compute::kF32);
  const Vocabulary teacher_head(target, nn::Compute::kF32);
  LossRows rows = c.rows;
  rows.teacher_MD = at::randn({33, 40}, at::kFloat);
  rows.teacher_head = &teacher_head;
  for (const LossKind kind : kAll) {
    SCOPED_TRACE(loss_name(kind));
    LossOptions options;
    options.terms = {{kind, 1.0}};
    const RowLosses got = row_losses(vocabulary, options, rows);
    const Plain want = plain(kind, {rows, c.head}, target);
    expect_near(got.loss_M, want.loss, 3e-5, "loss");
    expect_near(got.grad_MD, want.grad, 3e-5, "grad");
  }
}

TEST(Losses, GradientsEqualFiniteDifferences) {
  const Case c = make_case(5, 40, 12, nn::Compute::kF32);
  const Vocabulary vocabulary(c.head, nn::Compute::kF32);
  const at::Tensor w = c.head.linear.weight.to(at::kDouble);
  const at::Tensor x = c.rows.hidden_MD.to(at::kDouble);
  for (const LossKind kind : kAll) {
    if (kind == LossKind::kLkHybrid) continue;  // its lambda is held constant, a difference is not
    LossOptions options;
    options.terms = {{kind, 1.0}};
    const RowLosses got = row_losses(vocabulary, options, c.rows);
    at::Tensor numeric = at::zeros_like(x);
    constexpr double kStep = 1e-6;
    for (int64_t d = 0; d < x.size(1); ++d) {
      at::Tensor up = x.clone(), down = x.clone();
      up.select(1, d).add_(kStep);
      down.select(1, d).sub_(kStep);
      numeric.select(1, d).copy_(
          (plain_loss(kind, c.rows, up, w, w) - plain_loss(kind, c.rows, down, w, w)) /
          (2 * kStep));
    }
    expect_near(got.grad_MD, numeric, 1e-5, std::string(loss_name(kind)).c_str());
  }
}

TEST(Losses, WeightedSum) {
  const Case c = make_case(4, 30, 8, nn::Compute::kF32);
  const Vocabulary vocabulary(c.head, nn::Compute::kF32);
  LossOptions options;
  options.terms = parse_loss("0.25*kl+2*tv+ce");
  const RowLosses got = row_losses(vocabulary, options, c.rows);
  const Plain kl = plain(LossKind::kKl, c), tv = plain(LossKind::kTv, c),
              ce = plain(LossKind::kCrossEntropy, c);
  expect_near(got.loss_M, 0.25 * kl.loss + 2 * tv.loss + ce.loss, 3e-5, "loss");
  expect_near(got.grad_MD, 0.25 * kl.grad + 2 * tv.grad + ce.grad, 3e-5, "grad");
  EXPECT_THROW(parse_loss("mse"), Error);
  EXPECT_THROW(parse_loss("-1*kl"), Error);
  EXPECT_THROW(parse_loss(""), Error);
}

/// bf16 products: the twin sees the same rounded rows and weights; tiles round probabilities to
/// bf16 before the second product (relative 2^-9 a term).
TEST(Losses, Bf16TilesAndChunksEqualTwin) {
  const int64_t shapes[][3] = {{1, 40, 32}, {63, 256, 64}, {64, 300, 96}, {130, 1111, 64}};
  for (const auto& s : shapes) {
    SCOPED_TRACE(fmt::format("M={} V={} D={}", s[0], s[1], s[2]));
    Case c = make_case(s[0], s[1], s[2], nn::Compute::kBF16);
    c.rows.hidden_MD = c.rows.hidden_MD.to(at::kBFloat16).to(at::kFloat);
    const Vocabulary vocabulary(c.head, nn::Compute::kBF16);
    const Plain want = plain(LossKind::kCrossEntropy, c);
    const RowLosses got = row_losses(vocabulary, {}, c.rows);
    const double scale = c.head.linear.weight.abs().max().item<double>();
    expect_near(got.loss_M, want.loss, 1e-4, "loss");
    expect_near(got.grad_MD, want.grad, 2.0 / 256 * scale, "grad");
    const VocabularyMean chunks = vocabulary.mean_by_chunks(c.rows.hidden_MD, 50);
    const VocabularyMean direct = vocabulary.mean(c.rows.hidden_MD);
    expect_near(direct.mean_MD, chunks.mean_MD, 2.0 / 256 * scale, "mean");
    expect_near(direct.log_sum_M, chunks.log_sum_M, 1e-4, "log sum");
    EXPECT_TRUE(direct.argmax_M.equal(chunks.argmax_M));
  }
}

// Products of bf16 values are exact in f32, and only their sum is rounded: on every CPU the soft
// losses see f32 logits of the bf16 values, whichever the vocabulary's parts (4096 ids at a time).
TEST(Losses, Bf16SoftLossesHaveF32Sums) {
  const int64_t shapes[][3] = {{5, 300, 64}, {3, 4099, 32}};
  for (const auto& s : shapes) {
    Case c = make_case(s[0], s[1], s[2], nn::Compute::kBF16);
    c.rows.hidden_MD = c.rows.hidden_MD.to(at::kBFloat16).to(at::kFloat);
    c.rows.teacher_MD = c.rows.teacher_MD.to(at::kBFloat16).to(at::kFloat);
    const Vocabulary vocabulary(c.head, nn::Compute::kBF16);
    const at::Tensor w = c.head.linear.weight.to(at::kDouble);
    const at::Tensor logits = vocabulary.logits(c.rows.hidden_MD);
    expect_near(logits, at::matmul(c.rows.hidden_MD.to(at::kDouble), w.t()), 1e-5, "logits");
    const at::Tensor grad = at::randn({s[0], s[1]}, at::kFloat) / s[1];
    expect_near(vocabulary.back(grad), at::matmul(grad.to(at::kDouble), w), 1e-5, "back");
    for (const LossKind kind : {LossKind::kReverseKl, LossKind::kJsd, LossKind::kTv, LossKind::kNla,
                                LossKind::kLkHybrid}) {
      SCOPED_TRACE(fmt::format("{} V={}", loss_name(kind), s[1]));
      LossOptions options;
      options.terms = {{kind, 1.0}};
      const RowLosses got = row_losses(vocabulary, options, c.rows);
      const Plain want = plain(kind, c);
      expect_near(got.loss_M, want.loss, 3e-5, "loss");
      expect_near(got.grad_MD, want.grad, 3e-5, "grad");
    }
  }
}

TEST(Vocabulary, PaddingIdsGetNoProbability) {
  for (const auto compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    nn::Head head = make_head(300, 32, compute);
    head.num_ids = 290;
    head.linear.weight.narrow(0, 290, 10).fill_(5.0);  // would win for every positive row
    const Vocabulary vocabulary(head, compute);
    const VocabularyMean got = vocabulary.mean(at::ones({3, 32}, at::kFloat));
    EXPECT_LT(got.argmax_M.max().item<int64_t>(), 290);
    EXPECT_LT(got.mean_MD.max().item<double>(), 4.0);
    EXPECT_EQ(vocabulary.logits(at::ones({3, 32}, at::kFloat)).size(1), 290);
  }
}

// Every loss, soft ones too, is the loss over the real ids.
TEST(Vocabulary, PaddingIdsChangeNoLoss) {
  Case c = make_case(6, 50, 16, nn::Compute::kF32);
  const Vocabulary plain(c.head, nn::Compute::kF32);
  nn::Head padded;
  padded.linear = nn::Linear(at::cat({c.head.linear.weight, at::full({14, 16}, 5.0, at::kFloat)}),
                             {}, nn::Compute::kF32);
  padded.num_ids = 50;
  const Vocabulary vocabulary(padded, nn::Compute::kF32);
  for (const LossKind kind : kAll) {
    LossOptions options;
    options.terms = {{kind, 1.0}};
    const RowLosses got = row_losses(vocabulary, options, c.rows);
    const RowLosses want = row_losses(plain, options, c.rows);
    const std::string name(loss_name(kind));
    expect_near(got.loss_M, want.loss_M, 1e-6, name.c_str());
    expect_near(got.grad_MD, want.grad_MD, 1e-6, name.c_str());
  }
}

TEST(Vocabulary, RowsThatAreNotFiniteStayAlone) {
  for (const auto compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const Vocabulary vocabulary(make_head(300, 32, compute), compute);
    at::Tensor hidden = at::randn({5, 32}, at::kFloat);
    const VocabularyMean want = vocabulary.mean(hidden);
    hidden[1][7] = NAN;
    hidden[3][0] = INFINITY;
    for (const VocabularyMean& got :
         {vocabulary.mean(hidden), vocabulary.mean_by_chunks(hidden, 2)}) {
      for (const int64_t row : {1, 3}) {
        EXPECT_FALSE(got.mean_MD[row].isfinite().any().item<bool>());
        EXPECT_FALSE(got.log_sum_M[row].isfinite().item<bool>());
      }
      for (const int64_t row : {0, 2, 4}) {
        expect_near(got.mean_MD[row], want.mean_MD[row], 0.02, "mean");
        expect_near(got.log_sum_M[row], want.log_sum_M[row], 1e-4, "log sum");
      }
    }
  }
}

TEST(Vocabulary, RefusesWhatItCannotServe) {
  nn::Head head = make_head(3, 8, nn::Compute::kF32);
  const std::vector<std::vector<int64_t>> wrong = {{}, {1, 2}, {1, 2, 3, 4}, {1, -2, 3}, {4, 2, 4}};
  for (const auto& ids : wrong) {
    head.id_V = at::tensor(ids, at::kLong);
    EXPECT_THROW(Vocabulary(head, nn::Compute::kF32), Error) << ids.size();
  }
  head.id_V.reset();
  EXPECT_THROW(Vocabulary(head, nn::Compute::kF32).mean_by_chunks(at::ones({2, 8}, at::kFloat), 0),
               std::exception);
  head.linear.bias = at::ones({3}, at::kFloat);
  EXPECT_THROW(Vocabulary(head, nn::Compute::kF32), Error);
}

TEST(Vocabulary, TiesGoToTheLowestId) {
  for (const auto compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    nn::Head head = make_head(600, 32, compute, 0.0);
    const Vocabulary vocabulary(head, compute);
    const VocabularyMean got = vocabulary.mean(at::ones({2, 32}, at::kFloat));
    EXPECT_EQ(got.argmax_M.max().item<int64_t>(), 0);
    EXPECT_NEAR(got.log_sum_M[0].item<double>(), std::log(600.0), 1e-5);
  }
}

TEST(Vocabulary, LargeLogitsStayFinite) {
  const nn::Head head = make_head(100, 32, nn::Compute::kF32, 30.0);
  const Vocabulary vocabulary(head, nn::Compute::kF32);
  const VocabularyMean got = vocabulary.mean(at::randn({9, 32}, at::kFloat) * 10);
  EXPECT_TRUE(got.mean_MD.isfinite().all().item<bool>());
  EXPECT_TRUE(got.log_sum_M.isfinite().all().item<bool>());
}

TEST(Vocabulary, DraftIds) {
  nn::Head head = make_head(3, 8, nn::Compute::kF32);
  head.id_V = at::tensor({7, 2, 9}, at::kLong);
  const Vocabulary reduced(head, nn::Compute::kF32);
  const at::Tensor asked = at::tensor({2, 7, 9, 0, 10, 500, -1}, at::kLong);
  EXPECT_TRUE(reduced.draft_id(asked).equal(at::tensor({1, 0, 2, -1, -1, -1, -1}, at::kLong)));
  head.id_V.reset();
  const Vocabulary whole(head, nn::Compute::kF32);
  EXPECT_TRUE(whole.draft_id(asked).equal(at::tensor({2, -1, -1, 0, -1, -1, -1}, at::kLong)));
}

// R-LOSS-2
TEST(SlotWeights, DecayAndDenominator) {
  const block::BlockRule rule{.block_size = 4, .mask_id = 0, .slot_shift = 0, .layers = {{}}};
  LossOptions options;
  options.gamma = 2.0;
  const double loss[] = {0, 2, 1, 0.5};
  const auto normalised = [&](const std::vector<float>& trained) {
    const auto weight = slot_weights({rule, options}, trained, {});
    double sum = 0, total = 0;
    for (int k = 0; k < 4; ++k) {
      sum += weight[k] * loss[k];
      total += weight[k];
    }
    return std::pair(sum, sum / total);
  };
  EXPECT_NEAR(normalised({0, 1, 1, 1}).first, 2.790470, 1e-6);
  EXPECT_NEAR(normalised({0, 1, 1, 1}).second, 1.413319, 1e-6);
  EXPECT_NEAR(normalised({0, 1, 1, 0}).first, 2.606531, 1e-6);
  EXPECT_NEAR(normalised({0, 1, 1, 0}).second, 1.622459, 1e-6);
  EXPECT_NE(describe_loss(options).find("divided by the step's sum of weights"), std::string::npos);
}

// MODELS.md 4.8: s = (0.75, -, 0.5): survival 0.75, 0.75, 0.375; weights are tail sums over
// trained slots.
TEST(SlotWeights, Dpace) {
  const block::BlockRule rule{.block_size = 4, .mask_id = 0, .slot_shift = 0, .layers = {{}}};
  LossOptions options;
  options.slot_weights = SlotWeights::kDpace;
  const auto weight = slot_weights({rule, options}, {0, 1, 0, 1}, {0.9F, 0.5F, 0.9F, 0.0F});
  EXPECT_FLOAT_EQ(weight[0], 0.0F);
  EXPECT_FLOAT_EQ(weight[1], 0.75F + 0.375F);
  EXPECT_FLOAT_EQ(weight[2], 0.0F);
  EXPECT_FLOAT_EQ(weight[3], 0.375F);
}

// Streak weights make cross-entropy climb the expected number of slots accepted in a row: the
// gradient of -sum_j prod_{i<=j} q_i with respect to log q_k, by finite differences.
TEST(SlotWeights, StreakIsTheGradientOfTheExpectedStreak) {
  const block::BlockRule rule{.block_size = 5, .mask_id = 0, .slot_shift = 0, .layers = {{}}};
  LossOptions options;
  options.slot_weights = parse_slot_weights("streak");
  const std::vector<float> trained = {0, 1, 1, 0, 1}, prob = {0.3F, 0.9F, 0.5F, 0.2F, 0.7F};
  const auto streak = [&](size_t slot, double step) {
    double sum = 0, product = 1;
    for (size_t k = 0; k < 5; ++k) {
      if (trained[k] == 0) continue;
      product *= prob[k] * std::exp(k == slot ? step : 0.0);
      sum += product;
    }
    return sum;
  };
  const std::vector<float> weight = slot_weights({rule, options}, trained, prob);
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_NEAR(weight[k], (streak(k, 1e-5) - streak(k, -1e-5)) / 2e-5, 1e-6) << k;
  }
  EXPECT_FLOAT_EQ(weight[1], 0.9F + 0.45F + 0.315F);
  EXPECT_EQ(options.to_json()["slot_weights"], "streak");
  EXPECT_NE(describe_loss(options).find("expected streak"), std::string::npos);
  EXPECT_THROW(parse_slot_weights("cubic"), Error);
}

}  // namespace
}  // namespace dflash::train
