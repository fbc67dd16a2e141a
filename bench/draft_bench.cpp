// Milliseconds of one drafting step beside one target pass of the same run, as one JSON object: two
// layers, B=8, five taps, draft vocabulary 8192, random weights (a pass costs the same whatever
// they are).
//
//   draft_bench [model.gguf or folder] [f32|bf16|auto] [context rows]
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/timer.h"
#include "common.h"
#include "decode/proposers.h"
#include "jobs/model.h"
#include "jobs/new_drafter.h"

namespace dflash {
namespace {

constexpr int kRounds = 41;

/// Milliseconds by name, every part measured once a round.
class Parts {
 public:
  template <typename Work>
  void measure(const std::string& name, const Work& work) {
    const Timer timer;
    work();
    milliseconds_[name].push_back(1e3 * timer.seconds());
  }
  double median_of(const std::string& name) const { return median(milliseconds_.at(name)); }

 private:
  std::map<std::string, std::vector<double>> milliseconds_;
};

std::shared_ptr<draft::Drafter> random_drafter(const jobs::Model& model) {
  draft::DraftSpec spec = jobs::new_draft_spec(model, data::Dataset(), {});
  spec.draft_ids.resize(std::min<int64_t>(8192, spec.vocab_size));
  std::iota(spec.draft_ids.begin(), spec.draft_ids.end(), int64_t{0});
  auto drafter = draft::Drafter::create(spec, model.target->compute(), /*seed=*/1);
  const c10::NoGradGuard no_grad;
  // Values of bf16, as drafters are shipped.
  for (const auto& [name, tensor] : drafter->parameters()) {
    at::Tensor values = tensor;
    values.copy_(tensor.to(at::kBFloat16));
  }
  drafter->pack();
  return drafter;
}

void target_pass(const target::Target& target, target::State& state, int64_t rows,
                 const std::vector<int64_t>& taps) {
  const target::Segment segment{&state, 0, rows, rows > 1};
  const at::Tensor ids = at::arange(1000, 1000 + rows, at::kLong);
  const auto hidden = target.forward(
      {ids, at::arange(state.length(), state.length() + rows, at::kLong), {&segment, 1}},
      {.taps = taps});
  target.head().argmax(target.final_norm(hidden.last_RD));
  state.commit(0);
}

void run(const std::string& path, nn::Compute compute, int64_t context) {
  const auto model = jobs::load_model(path, compute);
  const target::Target& target = *model.target;
  const auto drafter = random_drafter(model);
  const auto proposer = decode::make_draft_proposer(drafter, target);
  const int64_t width =
      static_cast<int64_t>(drafter->spec().taps.size()) * drafter->spec().target_hidden_size;
  std::vector<int64_t> ids(context + 1, 1000);
  proposer->reset(0, 0);
  const decode::Proposer::Committed prompt{0, 0, context};
  proposer->observe({&prompt, 1}, at::randn({context, width}));
  const auto state = target.new_state();
  const target::Segment segment{state.get(), 0, context};
  target.forward({at::arange(context, at::kLong), at::arange(context, at::kLong), {&segment, 1}},
                 {});
  state->commit(context);
  const at::Tensor taps_RF = at::randn({2, width});

  Parts parts;
  for (int round = 0; round < kRounds; ++round) {
    parts.measure("pass", [&] { target_pass(target, *state, 1, {}); });
    parts.measure("verify", [&] { target_pass(target, *state, 8, drafter->spec().taps); });
    parts.measure("propose", [&] {
      const decode::Proposer::Sequence sequence{ids, 0, 7};
      proposer->propose({&sequence, 1});
    });
    parts.measure("observe", [&] {
      const decode::Proposer::Committed rows{0, static_cast<int64_t>(ids.size()) - 1, 2};
      proposer->observe({&rows, 1}, taps_RF);
    });
    ids.resize(ids.size() + 2, 1000);
  }
  const double pass = parts.median_of("pass");
  Json out = {{"kernels", nn::kernel_name(compute)},
              {"threads", nn::num_threads()},
              {"context", context},
              {"pass_ms", pass}};
  for (const char* name : {"verify", "propose", "observe"}) {
    const double ms = parts.median_of(name);
    out[name] = {{"ms", ms}, {"of_pass", ms / pass}};
  }
  std::printf("%s\n", out.dump(2).c_str());
}

}  // namespace
}  // namespace dflash

int main(int argc, char** argv) {
  return dflash::run_on_target(argc, argv, dflash::run);
}
