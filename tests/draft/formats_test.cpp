// Drafters in the forms of other programs: files that these wrote (tests/golden/make_formats.py)
// give the logits that these computed, and every form survives the way out and back bit for bit.
// That the programs read what we write: tests/peers/check_formats.py.
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "base/files.h"
#include "draft/formats_fixtures.h"
#include "draft/golden_row.h"
#include "draft/zlab.h"
#include "nn/tensor_io.h"
#include "support/temp_folder.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using testing::TempFolder;
using Tensors = std::map<std::string, at::Tensor>;

constexpr double kBound = 2e-4;  // f32 logits of size ~10..20 over two layers

/// Logits of one block a given anchor, as decoding computes them.
at::Tensor decode_blocks(const Drafter& drafter, Tensors& in) {
  const auto context = drafter.new_context();
  SequenceContext* pointer = context.get();
  const std::vector<int64_t> anchors = to_vector(in["anchors"]),
                             tokens = to_vector(in["anchor_tokens"]);
  std::vector<at::Tensor> logits;
  for (size_t i = 0; i < anchors.size(); ++i) {
    const int64_t first = context->length(), rows = anchors[i] - first;
    drafter.append({&pointer, 1}, {&rows, 1}, in["taps"].narrow(0, first, rows),
                   at::arange(first, anchors[i], at::kLong));
    const block::DecodingAnchor anchor{tokens[i], anchors[i]};
    const block::Blocks b = block::decoding_blocks(drafter.spec().rule, {&anchor, 1});
    const at::Tensor embed =
        drafter.own_tables().embed_VD.index_select(0, at::tensor(b.ids_NK, at::kLong));
    const at::Tensor hidden = drafter.forward({&pointer, 1}, b, embed.unsqueeze(0))[0];
    logits.push_back(at::matmul(hidden, drafter.own_tables().head_VD.t()));
  }
  return at::stack(logits);
}

/// A packed row of the golden file through the training forward: logits, and the loss as
/// speculators divides it.
void compare_with_speculators(const Drafter& drafter, Tensors& in) {
  const DraftSpec& spec = drafter.spec();
  const GoldenRow row(in, spec.rule);
  const block::Blocks& b = row.blocks;
  const at::Tensor hidden =
      drafter.forward(drafter.context(in["taps"], row.positions()), b, row.embed(in["table"]));
  at::Tensor target_head = in["head"];
  if (!spec.draft_ids.empty()) {
    target_head = target_head.index_select(0, at::tensor(spec.draft_ids, at::kLong));
  }
  const at::Tensor& own = drafter.own_tables().head_VD;
  const at::Tensor logits =
      at::matmul(hidden, (own.defined() ? own : target_head).t()).flatten(0, 1);
  expect_close(logits, in["logits"], kBound, "logits");

  const at::Tensor trained = at::tensor(b.weight_NK, at::kFloat);
  std::vector<int64_t> labels(b.weight_NK.size(), 0);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (b.weight_NK[i] == 0) continue;
    const at::Tensor last = in["last"][b.teacher_row_NK[i]];
    const at::Tensor normed = last * (last.pow(2).mean() + spec.rms_norm_eps).rsqrt();
    labels[i] = at::matmul(target_head, normed).argmax().item<int64_t>();
  }
  const std::vector<float> decay = block::slot_decay(spec.rule, 4.0);
  const at::Tensor weight =
      (trained.view({b.num_blocks, -1}) * at::tensor(decay, at::kFloat)).reshape(-1);
  const at::Tensor ce = -at::log_softmax(logits, -1)
                             .gather(-1, at::tensor(labels, at::kLong).unsqueeze(-1))
                             .squeeze(-1);
  const at::Tensor loss = (ce * weight).sum() / (trained.sum() + 1e-5);
  EXPECT_NEAR(loss.item<double>(), in["loss"].item<double>(), 1e-4);
}

/// The same model: every parameter, table and value of the canonical form.
void expect_same(const Drafter& got, const Drafter& want) {
  ASSERT_EQ(got.parameters().size(), want.parameters().size());
  for (const auto& [name, tensor] : want.parameters()) {
    EXPECT_TRUE(got.parameters().at(name).equal(tensor)) << name;
  }
  EXPECT_EQ(zlab_config(got.spec(), nn::Compute::kF32),
            zlab_config(want.spec(), nn::Compute::kF32));
  EXPECT_EQ(got.spec().draft_ids, want.spec().draft_ids);
  for (auto member : {&OwnTables::embed_VD, &OwnTables::head_VD}) {
    const at::Tensor &a = got.own_tables().*member, &b = want.own_tables().*member;
    ASSERT_EQ(a.defined(), b.defined());
    if (a.defined()) {
      EXPECT_TRUE(a.equal(b));
    }
  }
}

TEST(Speculators, FullVocabularyGivesTheirLogitsAndLoss) {
  const fs::path folder = kGolden / "speculators_full";
  ASSERT_EQ(recognise(folder), Format::kSpeculators);
  const auto drafter = load_drafter(folder, nn::Compute::kF32);
  const DraftSpec& spec = drafter->spec();
  EXPECT_EQ(spec.taps, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(spec.rule.layers[0], (block::LayerRule{2, Bound::kAnchor, InBlock::kCausal}));
  EXPECT_EQ(spec.rule.layers[1].in_block, InBlock::kBidirectional);
  EXPECT_FALSE(drafter->own_tables().any());
  Tensors in = nn::load_tensors(folder / "expected.safetensors");
  compare_with_speculators(*drafter, in);
}

TEST(Speculators, ReducedVocabularyWithItsOwnHead) {  // R-CK-6
  const fs::path folder = kGolden / "speculators_reduced";
  const auto drafter = load_drafter(folder, nn::Compute::kF32);
  EXPECT_EQ(drafter->spec().draft_ids.size(), 20u);
  EXPECT_EQ(drafter->spec().draft_ids[4], 8);
  EXPECT_EQ(drafter->spec().rule.layers[0].in_block, InBlock::kBidirectional);
  ASSERT_TRUE(drafter->own_tables().head_VD.defined());
  Tensors in = nn::load_tensors(folder / "expected.safetensors");
  compare_with_speculators(*drafter, in);
}

TEST(Speculators, OutAndBack) {
  for (const char* name : {"speculators_full", "speculators_reduced"}) {
    const auto first = load_drafter(kGolden / name, nn::Compute::kF32);
    TempFolder folder;
    export_drafter(*first, folder / "out", Format::kSpeculators, nn::Compute::kF32,
                   target_parts({}, {}, {"target", {"LlamaForCausalLM"}}));
    const auto second = load_drafter(folder / "out", nn::Compute::kF32);
    expect_same(*second, *first);
    Tensors in = nn::load_tensors(kGolden / name / "expected.safetensors");
    compare_with_speculators(*second, in);
    const Json theirs = read_json(kGolden / name / "config.json");
    const Json ours = read_json(folder / "out" / "config.json");
    for (const auto& [key, value] : theirs.items()) {
      const bool differs = key == "auto_map" || key == "speculators_config" ||
                           key == "transformers_version" || key == "transformer_layer_config";
      if (!differs) {
        EXPECT_EQ(ours.value(key, Json("absent")), value) << key;
      }
    }
    EXPECT_EQ(ours["speculators_config"]["proposal_methods"],
              theirs["speculators_config"]["proposal_methods"]);  // R-EX-5: one fewer than slots
  }
}

TEST(Speculators, DraftIdsGoOutInAscendingOrder) {
  DraftSpec spec = plain_spec();
  spec.draft_ids = {17, 0, 49, 4};
  const auto first = small_drafter(spec, nn::Compute::kF32);
  const at::Tensor head = random_tensor({50, 24}, 9);
  TempFolder folder;
  export_drafter(*first, folder / "out", Format::kSpeculators, nn::Compute::kF32,
                 target_parts(head));
  const auto second = load_drafter(folder / "out", nn::Compute::kF32);
  EXPECT_EQ(second->spec().draft_ids, (std::vector<int64_t>{0, 4, 17, 49}));
  EXPECT_TRUE(second->own_tables().head_VD.equal(
      head.index_select(0, at::tensor({0, 4, 17, 49}, at::kLong))));
  EXPECT_TRUE(drop_borrowed_tables(*second, at::Tensor(), head));
  EXPECT_FALSE(second->own_tables().any());
  EXPECT_FALSE(drop_borrowed_tables(*second, at::Tensor(), head));
}

TEST(Speculators, DamagedVocabularyMaps) {
  const auto damaged = [&](const std::function<void(Tensors&)>& change) {
    TempFolder folder;
    fs::copy(kGolden / "speculators_reduced", folder / "x");
    Tensors tensors;
    for (auto& [name, tensor] : nn::load_tensors(folder / "x/model.safetensors")) {
      tensors[name] = tensor.clone();
    }
    change(tensors);
    nn::save_tensors(folder / "x/model.safetensors", tensors);
    return testing::error_of<Error>([&] { load_drafter(folder / "x", nn::Compute::kF32); });
  };
  EXPECT_NE(damaged([](Tensors& t) { t.erase("d2t"); }).find("d2t"), std::string::npos);
  EXPECT_NE(damaged([](Tensors& t) { t["d2t"][3] += 1; }).find("t2d"), std::string::npos);
  EXPECT_NE(damaged([](Tensors& t) { t["d2t"][3] -= 2; }).find("twice"), std::string::npos);
  EXPECT_NE(damaged([](Tensors& t) { t["d2t"][19] += 1; }).find("t2d"), std::string::npos);
  EXPECT_NE(damaged([](Tensors& t) { t["lm_head.weight"][2].fill_(NAN); }).find("finite"),
            std::string::npos);
}

TEST(DeepSpec, AnchorFirstWithOwnTables) {
  const fs::path folder = kGolden / "deepspec";
  ASSERT_EQ(recognise(folder), Format::kDeepSpec);
  const auto first = load_drafter(folder, nn::Compute::kF32);
  EXPECT_EQ(first->spec().rule.slot_shift, 1);
  Tensors in = nn::load_tensors(folder / "expected.safetensors");
  expect_close(decode_blocks(*first, in), in["logits"], kBound, "logits");
  TempFolder out;
  export_drafter(*first, out / "x", Format::kDeepSpec, nn::Compute::kF32, {});
  const auto second = load_drafter(out / "x", nn::Compute::kF32);
  expect_same(*second, *first);
  const Json theirs = read_json(folder / "config.json"), ours = read_json(out / "x/config.json");
  for (const auto& [key, value] : theirs.items()) {
    if (key != "torch_dtype") {
      EXPECT_EQ(ours.value(key, Json("absent")), value) << key;
    }
  }
}

TEST(LlamaCpp, ConvertedFileGivesItsLogits) {
  const fs::path path = kGolden / "llama_cpp.gguf";
  ASSERT_EQ(recognise(path), Format::kGguf);
  const auto drafter = load_drafter(path, nn::Compute::kF32);
  const DraftSpec& spec = drafter->spec();
  EXPECT_EQ(spec.taps, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(spec.rule.mask_id, 570);
  EXPECT_EQ(spec.vocab_size, 576);
  EXPECT_EQ(spec.rule.layers[0], (block::LayerRule{5, Bound::kQuery, InBlock::kBidirectional}));
  Tensors in = nn::load_tensors(kGolden / "llama_cpp.expected.safetensors");
  expect_close(decode_blocks(*drafter, in), in["logits"], kBound, "logits");
  TempFolder out;
  export_drafter(*drafter, out / "x.gguf", Format::kGguf, nn::Compute::kF32,
                 target_parts({}, io::copy_entries(*io::GgufFile::open(path), "tokenizer.ggml.")));
  expect_same(*load_drafter(out / "x.gguf", nn::Compute::kF32), *drafter);
  // Key for key what their converter writes, but names of models and files.
  const auto theirs = io::GgufFile::open(path), ours = io::GgufFile::open(out / "x.gguf");
  for (const std::string& key : theirs->keys("")) {
    if (key.starts_with("general.") && key != "general.architecture") continue;
    ASSERT_TRUE(ours->has(key)) << key;
    EXPECT_EQ(ours->values(key), theirs->values(key)) << key;
  }
  for (const io::GgufTensor& tensor : theirs->tensors()) {
    EXPECT_EQ(ours->get(tensor.name).shape, tensor.shape) << tensor.name;
  }
  EXPECT_EQ(ours->tensors().size(), theirs->tensors().size());
}

TEST(Gguf, OutAndBackInEveryShape) {
  DraftSpec spec = plain_spec();
  spec.rope.scaling = "llama3";
  spec.rope.factor = 8.0;
  spec.rope.original_max_positions = 64;
  const at::Tensor head = random_tensor({50, 24}, 9);
  for (const bool reduced : {false, true}) {
    spec.draft_ids = reduced ? std::vector<int64_t>{17, 0, 49} : std::vector<int64_t>{};
    const auto first = small_drafter(spec, nn::Compute::kF32);
    TempFolder out;
    export_drafter(*first, out / "x.gguf", Format::kGguf, nn::Compute::kF32,
                   target_parts(head, vocabulary(50)));
    const auto second = load_drafter(out / "x.gguf", nn::Compute::kF32);
    EXPECT_EQ(second->spec().draft_ids, spec.draft_ids);
    EXPECT_EQ(second->own_tables().head_VD.defined(), reduced);
    EXPECT_EQ(second->spec().target_fingerprint, "t-1");
    EXPECT_EQ(second->spec().target_num_layers, 5);
    for (const auto& [name, tensor] : first->parameters()) {
      EXPECT_TRUE(second->parameters().at(name).equal(tensor)) << name;
    }
    const auto scaled = nn::Rope(spec.rope, spec.head_dim).inverse_frequencies();
    const auto read = nn::Rope(second->spec().rope, spec.head_dim).inverse_frequencies();
    for (size_t f = 0; f < scaled.size(); ++f) EXPECT_NEAR(read[f], scaled[f], scaled[f] * 1e-6);
    // A list of factors has no name in the other forms.
    EXPECT_NE(export_error(*second, Format::kZlab).find("rotary"), std::string::npos);
  }
}

TEST(Zlab, OutAndBackWithOwnTables) {  // R-CK-6
  DraftSpec spec = plain_spec();
  spec.draft_ids = {4, 0, 17};
  const auto first = small_drafter(spec, nn::Compute::kF32);
  first->set_own_tables({random_tensor({50, 24}, 8), random_tensor({3, 24}, 9)});
  TempFolder out;
  save_zlab(*first, out / "x", nn::Compute::kF32);
  expect_same(*load_drafter(out / "x", nn::Compute::kF32), *first);
  EXPECT_NE(export_error(*first, Format::kZlab).find("own tables"), std::string::npos);
  first->set_own_tables({});
  export_drafter(*first, out / "y", Format::kZlab, nn::Compute::kF32, {});
  expect_same(*load_drafter(out / "y", nn::Compute::kF32), *first);
}

}  // namespace
}  // namespace dflash::draft
