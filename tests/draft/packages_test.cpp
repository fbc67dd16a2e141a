// Against the packages of others (tests/golden/make_draft.py): folders that z-lab's class wrote are
// loaded and their blocks decoded to its hidden rows; logits, loss and gradients of speculators on
// a packed row with anchor-relative windows.
#include <ATen/ops/log_softmax.h>

#include "draft/fixtures.h"
#include "draft/golden_row.h"
#include "draft/zlab.h"
#include "nn/tensor_io.h"
#include "support/paths.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;
using Tensors = std::map<std::string, at::Tensor>;

const std::filesystem::path kGolden = tree::root() / "tests/golden/draft";
constexpr double kBound = 256 * 1.2e-7;  // c * eps * norm, rows of size ~1..3

class Zlab : public testing::TestWithParam<const char*> {};

TEST_P(Zlab, HiddenRowsOfTwoBlocks) {
  const std::filesystem::path folder = kGolden / GetParam();
  const auto drafter = load_zlab(folder, nn::Compute::kF32);
  Tensors in = nn::load_tensors(folder / "block.safetensors");
  const auto context = drafter->new_context();
  SequenceContext* pointer = context.get();
  const std::vector<int64_t> anchors = to_vector(in["anchors"]);
  for (size_t i = 0; i < anchors.size(); ++i) {
    const int64_t first = context->length(), rows = anchors[i] - first;
    drafter->append({&pointer, 1}, {&rows, 1}, in["taps"].narrow(0, first, rows),
                    at::arange(first, anchors[i], at::kLong));
    const block::DecodingAnchor anchor{1, anchors[i]};
    const block::Blocks b = block::decoding_blocks(drafter->spec().rule, {&anchor, 1});
    const auto n = static_cast<int64_t>(i);
    const at::Tensor got = drafter->forward({&pointer, 1}, b, in["embed"].narrow(0, n, 1))[0];
    expect_close(got, in["hidden"][n], kBound * 4, fmt::format("{} block {}", GetParam(), i));
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Zlab,
                         testing::Values("zlab_full", "zlab_sliding",
                                         "zlab_sliding_bidirectional"));

void compare_with_speculators(const char* name, InBlock in_block) {
  Tensors in = nn::load_tensors(kGolden / fmt::format("speculators_{}.safetensors", name));
  DraftSpec spec = small_spec({{2, Bound::kAnchor, in_block}, LayerRule{}});
  spec.target_hidden_size = 24;
  Tensors weights;
  for (const auto& [key, tensor] : in) {
    if (key.starts_with("weight.")) weights[key.substr(7)] = tensor.clone();
  }
  const auto drafter = Drafter::from_weights(spec, nn::Compute::kF32, weights);
  drafter->set_requires_grad(true);

  const GoldenRow row(in, spec.rule);
  const block::Blocks& b = row.blocks;
  const at::Tensor hidden =
      drafter->forward(drafter->context(in["taps"], row.positions()), b, row.embed(in["table"]));
  const at::Tensor logits = at::matmul(hidden, in["head"].t()).flatten(0, 1);
  expect_close(logits, in["logits"], kBound * 20, fmt::format("{} logits", name));

  // Which slots are trained, and where the teacher of a slot stands.
  const at::Tensor trained = at::tensor(b.weight_NK, at::kFloat);
  EXPECT_TRUE(trained.to(at::kLong).equal(in["mask"].reshape(-1)));
  std::vector<int64_t> labels(b.weight_NK.size(), 0);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (b.weight_NK[i] == 0) continue;
    const at::Tensor last = in["last"][b.teacher_row_NK[i]];
    const at::Tensor normed = last * (last.pow(2).mean() + spec.rms_norm_eps).rsqrt();
    const at::Tensor teacher = at::matmul(in["head"], normed);
    expect_close(teacher, in["teacher_logits"][static_cast<int64_t>(i)], 1e-4, "teacher row");
    labels[i] = teacher.argmax().item<int64_t>();
  }

  // Theirs divides by the number of trained slots, ours by the sum of weights.
  const std::vector<float> decay = block::slot_decay(spec.rule, 4.0);
  const at::Tensor weight =
      (trained.view({b.num_blocks, -1}) * at::tensor(decay, at::kFloat)).reshape(-1);
  const at::Tensor ce = -at::log_softmax(logits, -1)
                             .gather(-1, at::tensor(labels, at::kLong).unsqueeze(-1))
                             .squeeze(-1);
  const at::Tensor loss = (ce * weight).sum() / (trained.sum() + 1e-5);
  EXPECT_NEAR(loss.item<double>(), in["loss.ce"].item<double>(), 1e-4);
  loss.backward();
  for (const auto& [key, tensor] : drafter->parameters()) {
    const at::Tensor& grad = in.at("grad.ce." + key);
    const double scale = std::max(1.0, grad.abs().max().item<double>());
    expect_close(tensor.grad(), grad, kBound * scale, fmt::format("{} gradient of {}", name, key));
  }
}

TEST(Speculators, CausalWindow) {
  compare_with_speculators("causal", InBlock::kCausal);
}

TEST(Speculators, BidirectionalWindow) {
  compare_with_speculators("bidirectional", InBlock::kBidirectional);
}

}  // namespace
}  // namespace dflash::draft
