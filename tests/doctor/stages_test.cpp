// train = serve, and every deviation of one side is named at the stage where it enters.
#include "doctor/stages.h"

#include <gtest/gtest.h>

#include "doctor/world.h"

namespace dflash::doctor {
namespace {

using block::Bound;
using block::InBlock;

struct World {
  std::shared_ptr<const target::Target> target = small_target();
  std::shared_ptr<draft::Drafter> drafter;
  data::Dataset dataset;
  std::vector<BlockPlace> places;
  Convention declared;

  explicit World(const std::vector<block::LayerRule>& layers) {
    drafter = draft::small_drafter(spec_for(*target, layers), nn::Compute::kF32);
    dataset = own_answers(*target, small_prompts(2), {.max_new_tokens = 24});
    places = telling_anchors(drafter->spec().rule, dataset, 4, 1);
    declared = declared_convention(drafter->spec());
  }
  std::vector<StageResult> compare(const Convention& trained, const Convention& served) const {
    return compare_stages(training_stages(trained, *drafter, target, dataset, places),
                          decoding_stages(served, *drafter, *target, dataset, places),
                          stage_tolerance(nn::Compute::kF32));
  }
};

std::string first_difference(const std::vector<StageResult>& results) {
  for (const StageResult& result : results) {
    if (!result.agrees) return result.name;
  }
  return "";
}

TEST(Stages, TrainingAndDecodingAgreeUnderEveryRule) {
  const std::vector<std::vector<block::LayerRule>> rules = {
      {{}, {}},
      {{.in_block = InBlock::kCausal}, {}},
      {{.window = 5}, {.window = 5, .bound = Bound::kAnchor, .in_block = InBlock::kCausal}},
  };
  for (const auto& layers : rules) {
    const World world(layers);
    const auto results = world.compare(world.declared, world.declared);
    EXPECT_EQ(results.size(), 17U);  // none of the stages is left out
    EXPECT_EQ(first_difference(results), "") << stage_table(results, "train", "serve");
  }
}

// Both sides read the drafter's tables; without them the logits are other ones.
TEST(Stages, OwnTablesServeBothSides) {
  World world({{}, {}});
  const Stages borrowed =
      training_stages(world.declared, *world.drafter, world.target, world.dataset, world.places);
  const auto& config = world.target->config();
  world.drafter->set_own_tables(
      {.embed_VD = draft::random_tensor({config.vocab_size, config.hidden_size}, 11),
       .head_VD = draft::random_tensor({config.vocab_size, config.hidden_size}, 12)});
  const auto results = world.compare(world.declared, world.declared);
  EXPECT_EQ(first_difference(results), "") << stage_table(results, "train", "serve");
  const Stages own =
      training_stages(world.declared, *world.drafter, world.target, world.dataset, world.places);
  EXPECT_EQ(first_difference(compare_stages(borrowed, own, stage_tolerance(nn::Compute::kF32))),
            "layers.0.hidden");
}

TEST(Stages, TellingAnchorsHoldTheEdges) {
  const World world({{.window = 5}, {}});
  std::set<int64_t> first;
  for (const BlockPlace& place : world.places) {
    if (place.document == 0) first.insert(place.anchor);
  }
  const auto length = static_cast<int64_t>(world.dataset.document_ids(0).size());
  for (const int64_t anchor :
       {int64_t{0}, int64_t{1}, int64_t{4}, int64_t{5}, int64_t{6}, length - 2, length - 1}) {
    EXPECT_TRUE(first.contains(anchor)) << anchor;
  }
}

TEST(Stages, EveryDeviationIsNamedWhereItEnters) {
  const World world({{}, {}});
  const std::map<std::string, std::string> where = {
      {"anchor-visible", "visible.0"},
      {"context-short", "visible.0"},
      {"taps-up", "taps"},
      {"tap-2-zeroed", "taps"},
      {"taps-0-2-swapped", "taps"},
      {"taps-reversed", "taps"},
      {"features-bf16", "taps"},
      {"last-tap-normed", "taps"},
      {"taps-normed", "taps"},
      {"labels-anchor-first", "proposals"},
      {"positions-late", "block.positions"},
      {"positions-early", "block.positions"},
      {"anchor-masked", "block.ids"},
      {"block-causal", "visible.0"},
      {"mask-id-0", "block.ids"},
      {"rope-base-1e+06", "layers.0.k"},
  };
  std::set<std::string> tried;
  for (const Deviation& deviation : deviations_of(world.declared, *world.target, 30)) {
    const auto expected = where.find(deviation.name);
    if (expected == where.end()) continue;
    tried.insert(deviation.name);
    const auto results = world.compare(world.declared, deviate(world.declared, deviation));
    EXPECT_EQ(first_difference(results), expected->second) << deviation.name;
  }
  EXPECT_EQ(tried.size(), where.size());
}

// FAULTS: anchor at 24 with B = 16 sees context rows 0..23 and no other; anchor 0 sees none.
TEST(Stages, AnchorAt24SeesRows0To23) {
  const auto target = small_target();
  draft::DraftSpec spec = spec_for(*target, {{}, {}});
  spec.rule.block_size = 16;
  const auto drafter = draft::small_drafter(spec, nn::Compute::kF32);
  const auto dataset = own_answers(*target, small_prompts(1), {.max_new_tokens = 40});
  const auto stages =
      decoding_stages(declared_convention(spec), *drafter, *target, dataset, {{0, 24}, {0, 0}});
  const at::Tensor seen = *stages.find("visible.1");
  for (int64_t k = 0; k < 16; ++k) {
    EXPECT_EQ(seen[0][k][0].item<int64_t>(), 0);
    EXPECT_EQ(seen[0][k][1].item<int64_t>(), 24);
    EXPECT_EQ(seen[1][k][1].item<int64_t>(), 0);
  }
  EXPECT_EQ(stages.find("taps")->size(1), 3 * target->config().hidden_size);  // every tap is used
}

}  // namespace
}  // namespace dflash::doctor
