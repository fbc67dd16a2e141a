// Logits, labels, weights, loss and the gradient of every parameter against the numbers of
// reference/dflash_reference.py (f64, dense mask): full, four windows, reduced vocabulary,
// anchor-first, on packed documents with padding.
#include <ATen/ops/log_softmax.h>

#include <map>

#include "base/files.h"
#include "draft/drafter.h"
#include "draft/fixtures.h"
#include "draft/golden_row.h"
#include "nn/tensor_io.h"
#include "support/paths.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;
using Tensors = std::map<std::string, at::Tensor>;

const std::filesystem::path kGolden = tree::root() / "tests/golden/draft";

struct Case {
  const char* name;
  LayerRule first = {};
  int64_t slot_shift = 0;
  bool reduced = false;
};

const Case kCases[] = {
    {"full"},
    {"query_bidirectional", {3, Bound::kQuery, InBlock::kBidirectional}},
    {"query_causal", {3, Bound::kQuery, InBlock::kCausal}},
    {"anchor_bidirectional", {2, Bound::kAnchor, InBlock::kBidirectional}},
    {"anchor_causal", {2, Bound::kAnchor, InBlock::kCausal}},
    {"reduced_vocabulary", {}, 0, true},
    {"anchor_first", {}, 1},
};

struct Setup {
  explicit Setup(const Case& c) : in(nn::load_tensors(kGolden / "inputs.safetensors")) {
    spec = small_spec({c.first, LayerRule{}});
    spec.rule.slot_shift = c.slot_shift;
    for (int64_t id = 0; c.reduced && id < 50; id += 3) spec.draft_ids.push_back(id);
    Tensors weights;
    for (const auto& [name, tensor] : in) {
      if (name.starts_with("weight.")) weights[name.substr(7)] = tensor.clone();
    }
    drafter = Drafter::from_weights(spec, nn::Compute::kF32, weights);
    drafter->set_requires_grad(true);
    const GoldenRow row(in, spec.rule);
    ids = row.ids;
    pos = row.pos;
    blocks = row.blocks;
  }

  // Draft ids of labels and slot weights, as the trainer has them.
  void supervise() {
    std::map<int64_t, int64_t> draft_id;
    for (size_t i = 0; i < spec.draft_ids.size(); ++i) draft_id[spec.draft_ids[i]] = i;
    const std::vector<float> decay = block::slot_decay(spec.rule, 4.0);
    for (size_t i = 0; i < blocks.ids_NK.size(); ++i) {
      double weight = blocks.weight_NK[i] * decay[i % decay.size()];
      int64_t label = weight > 0 ? ids[blocks.label_row_NK[i]] : 0;
      if (weight > 0 && !spec.draft_ids.empty()) {
        const auto found = draft_id.find(label);
        if (found == draft_id.end()) weight = 0;
        label = found == draft_id.end() ? 0 : found->second;
      }
      labels.push_back(label);
      weights.push_back(weight);
    }
  }

  at::Tensor logits(at::ScalarType dtype) {
    const at::Tensor embed = in["table"]
                                 .index_select(0, at::tensor(blocks.ids_NK, at::kLong))
                                 .view({blocks.num_blocks, blocks.block_size, -1})
                                 .to(dtype);
    const PackedContext context =
        drafter->context(in["taps"].to(dtype), at::tensor(pos, at::kLong));
    at::Tensor head = in["head"].to(dtype);
    if (!spec.draft_ids.empty()) head = head.index_select(0, at::tensor(spec.draft_ids, at::kLong));
    return at::matmul(drafter->forward(context, blocks, embed), head.t());
  }

  Tensors in;
  DraftSpec spec;
  std::shared_ptr<Drafter> drafter;
  std::vector<int64_t> ids, pos, labels;
  std::vector<double> weights;
  block::Blocks blocks;
};

void compare(const Case& c, at::ScalarType dtype, double bound) {
  Setup setup(c);
  setup.supervise();
  Tensors want = nn::load_tensors(kGolden / fmt::format("{}.safetensors", c.name));
  const std::string what = fmt::format("{} {}: ", c.name, at::toString(dtype));

  const at::Tensor weight = at::tensor(setup.weights, at::kDouble).view_as(want["weight"]);
  expect_close(weight, want["weight"], 1e-6, what + "weights");
  const at::Tensor label = at::tensor(setup.labels, at::kLong).view_as(want["label"]);
  EXPECT_TRUE(label.mul(weight > 0).equal(want["label"].mul(want["weight"] > 0))) << what;

  const at::Tensor logits = setup.logits(dtype);
  expect_close(logits, want["logits"], bound * 20, what + "logits");  // |logits| up to ~20
  const at::Tensor ce = -at::log_softmax(logits, -1).gather(-1, label.unsqueeze(-1)).squeeze(-1);
  // Weights of the golden, so that f32 decay does not blur the f64 comparison.
  const at::Tensor loss = (ce * want["weight"]).sum() / want["weight"].sum();
  EXPECT_NEAR(loss.item<double>(), want["losses"][0].item<double>(), bound * 20) << what;
  loss.backward();
  for (const auto& [name, tensor] : setup.drafter->parameters()) {
    const at::Tensor& grad = want.at("grad." + name);
    // Relative to the largest element of this tensor's gradient.
    const double scale = std::max(1.0, grad.abs().max().item<double>());
    expect_close(tensor.grad(), grad, bound * scale, what + "gradient of " + name);
  }
}

// Gradients end in f32 leaves, so f64 is good to f32 rounding of each leaf's sum of parts.
TEST(Reference, F64) {
  for (const Case& c : kCases) compare(c, at::kDouble, 1e-6);
}

// c * eps * norm, c = 256: two layers, sums of up to ~40 terms, logits amplified by a unit head.
TEST(Reference, F32) {
  for (const Case& c : kCases) compare(c, at::kFloat, 256 * 1.2e-7);
}

}  // namespace
}  // namespace dflash::draft
