// The real SmolLM2-135M-Instruct (Q4_1 GGUF) against transformers in f32, and bf16 against f32.
#include <cstdio>

#include "base/files.h"
#include "helpers.h"
#include "target/load.h"

namespace dflash::target {
namespace {

const std::vector<int64_t> kTaps = {1, 8, 14, 20, 27};

/// Loaded once a test program; nothing when the file is not there.
std::shared_ptr<const Target> smol(nn::Compute compute) {
  static std::map<nn::Compute, std::shared_ptr<const Target>> loaded;
  if (!std::filesystem::exists(smol_path())) return nullptr;
  auto& target = loaded[compute];
  if (!target) target = load_target(smol_path(), {.compute = compute});
  return target;
}

#define SMOL_OR_SKIP(target, compute) \
  const auto target = smol(compute);  \
  if (!target) GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is not in the assets folder"

struct Text {
  std::vector<int64_t> prompt, tokens;
  std::vector<double> margins;  // top-two margin of every choice
};

std::vector<Text> golden_texts() {
  std::vector<Text> texts;
  for (const Json& item : read_json(golden("smol_greedy.json"))) {
    texts.push_back({item.at("prompt"), item.at("tokens"), item.at("margins")});
  }
  return texts;
}

std::vector<int64_t> list_of(const at::Tensor& ids) {
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

/// Rows first, middle, last and every ninth column of [R, n * 576] -> [n, 3, 64].
at::Tensor sampled(const at::Tensor& values, int64_t parts) {
  const int64_t rows = values.size(0);
  const at::Tensor chosen =
      values.index_select(0, at::tensor({int64_t{0}, rows / 2, rows - 1}, at::kLong));
  return chosen.view({3, parts, 64, 9}).select(3, 0).transpose(0, 1);
}

/// Greedy continuation of all texts at once through the rows interface.
std::vector<std::vector<int64_t>> greedy(const Target& target, const std::vector<Text>& texts,
                                         size_t count) {
  std::vector<std::unique_ptr<State>> states;
  std::vector<Feed> feeds;
  for (const Text& text : texts) {
    states.push_back(target.new_state());
    feeds.push_back({states.back().get(), text.prompt});
  }
  std::vector<std::vector<int64_t>> out(texts.size());
  for (size_t step = 0; step < count; ++step) {
    const at::Tensor last_RD = pass(target, feeds).last_RD;
    std::vector<int64_t> ends;
    int64_t row = 0;
    for (Feed& feed : feeds) {
      row += static_cast<int64_t>(feed.ids.size());
      ends.push_back(row - 1);
      feed.state->commit(static_cast<int64_t>(feed.ids.size()));
    }
    const at::Tensor ends_RD = last_RD.index_select(0, at::tensor(ends, at::kLong));
    const std::vector<int64_t> next = list_of(target.head().argmax(target.final_norm(ends_RD)));
    for (size_t i = 0; i < feeds.size(); ++i) {
      feeds[i].ids = {next[i]};
      out[i].push_back(next[i]);
    }
  }
  return out;
}

TEST(Smol, ConfigFromTheFile) {
  SMOL_OR_SKIP(target, nn::Compute::kF32);
  const TargetConfig& config = target->config();
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_EQ(config.rope_theta, 100000.0);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.eos_ids, std::vector<int64_t>{2});
  EXPECT_EQ(target->storage(), "Q4_1, Q8_0, F32 as f32");
}

void compare_taps(const Target& target, double relative) {
  const auto want = nn::load_tensors(golden("smol_taps.safetensors"));
  for (int n = 0; n < 3; ++n) {
    const std::string number = "." + std::to_string(n);
    const auto state = target.new_state();
    const Hidden hidden = advance(target, *state, list_of(want.at("ids" + number)), kTaps);
    const at::Tensor taps = want.at("taps" + number), got = sampled(hidden.taps_RF, 5);
    for (int64_t tap = 0; tap < 5; ++tap) {
      // Row by row: the first row's residual is a hundred times the others'.
      for (int64_t row = 0; row < 3; ++row) {
        const at::Tensor expected = taps[tap][row];
        expect_within(got[tap][row], expected, relative * expected.norm().item<double>() / 8,
                      fmt::format("prompt {} tap {} row {}", n, kTaps[tap], row));
      }
    }
    const at::Tensor rows =
        at::tensor({int64_t{0}, hidden.last_RD.size(0) / 2, hidden.last_RD.size(0) - 1}, at::kLong);
    const at::Tensor scores = logits(target, hidden.last_RD.index_select(0, rows));
    const at::Tensor top = want.at("top_logits" + number);
    expect_within(scores.gather(1, want.at("top_ids" + number)), top,
                  relative * top.abs().max().item<double>(), "top logits");
  }
}

// f32 through 30 blocks: 2000 eps of the row's rms covers the order of sums (eps 1.2e-7).
TEST(Smol, TapsEqualTransformersInF32) {
  SMOL_OR_SKIP(target, nn::Compute::kF32);
  compare_taps(*target, 2000 * 1.2e-7);
}

// bf16 operands (eps 2^-8) of 4 products in 30 blocks: 30 eps of the row's rms.
TEST(Smol, TapsStayNearInBf16) {
  SMOL_OR_SKIP(target, nn::Compute::kBF16);
  compare_taps(*target, 30.0 / 256);
}

TEST(Smol, GreedyTextsEqualTransformersInF32) {
  SMOL_OR_SKIP(target, nn::Compute::kF32);
  const std::vector<Text> texts = golden_texts();
  const auto got = greedy(*target, texts, 128);
  for (size_t n = 0; n < texts.size(); ++n) {
    for (size_t i = 0; i < 128; ++i) {
      if (got[n][i] == texts[n].tokens[i]) continue;
      // A margin of rounding size says tie, not error; what follows then differs rightly.
      EXPECT_LT(texts[n].margins[i], 1e-3) << "text " << n << " token " << i << ": got "
                                           << got[n][i] << ", expected " << texts[n].tokens[i];
      std::printf("text %zu: tie at token %zu, margin %g\n", n, i, texts[n].margins[i]);
      break;
    }
  }
}

// Reported, and bounded: where bf16 leaves the f32 text, the choice was close there.
TEST(Smol, GreedyTextsInBf16LeaveOnlyAtCloseChoices) {
  SMOL_OR_SKIP(target, nn::Compute::kBF16);
  const std::vector<Text> texts = golden_texts();
  const auto got = greedy(*target, texts, 128);
  size_t agreed = 0, whole = 0;
  for (size_t n = 0; n < texts.size(); ++n) {
    size_t i = 0;
    while (i < 128 && got[n][i] == texts[n].tokens[i]) ++i;
    agreed += i;
    if (i == 128) {
      ++whole;
    } else {
      EXPECT_LT(texts[n].margins[i], 1.0) << "text " << n << " token " << i;
    }
  }
  std::printf("bf16 = f32 for %.1f of 128 tokens on average, %zu of %zu texts whole\n",
              static_cast<double>(agreed) / static_cast<double>(texts.size()), whole, texts.size());
}

}  // namespace
}  // namespace dflash::target
