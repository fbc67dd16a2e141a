// serve: the target as a service, with OpenAI's HTTP interface and a chat page.
#include <cstdio>

#include "base/stop.h"
#include "cli/checks.h"
#include "cli/drafters.h"
#include "cli/verbs.h"
#include "serve/server.h"

namespace dflash::cli {
namespace {

/// "SmolLM2-135M-Instruct.Q4_1" of a .gguf file, "Qwen3-8B" of a folder.
std::string model_name(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path);
  return (whole.extension() == ".gguf" ? whole.stem() : whole.filename()).string();
}

serve::Served make_served(const jobs::Model& model, const SamplingOptions& sampling) {
  serve::Served served{.name = {}, .tokenizer = model.tokenizer, .chat = model.chat};
  serve::add_thinking(served);
  served.max_positions = model.target->config().max_positions;
  served.vocab_size = model.target->config().vocab_size;
  served.sampling = sampling.sampling;
  served.max_new_tokens = sampling.max_new_tokens;
  return served;
}

}  // namespace

int run_serve(int argc, char** argv) {
  VerbParser parser("serve",
                    "Serves the target over HTTP as OpenAI does: /v1/chat/completions, "
                    "/v1/completions, /v1/models, /health, and a chat page at /. Sampling options "
                    "hold for requests that do not say; one that wants greedy text says "
                    "temperature 0. Requests without a seed get one each unless --seed is given.");
  TargetOptions target;
  ProposerOptions proposer_options;
  SamplingOptions sampling;
  sampling.sampling.temperature = 1.0;
  sampling.max_new_tokens = 1024;
  serve::ServerOptions options{.port = 8080};
  std::string name;
  auto& app = parser.app();
  target.add(app);
  proposer_options.add(app);
  sampling.add(app);
  app.add_option("--host", options.host, "address to listen on (0.0.0.0: every one of this host)");
  app.add_option("--port", options.port, "port (0: any free one, which is printed)")
      ->check(integer_from(0, 65535));
  app.add_option("--parallel", options.scheduler.num_slots, "requests in one pass")
      ->check(integer_from(1, 256));
  app.add_option("--max-queue", options.scheduler.max_waiting,
                 "requests that may wait for their turn; more are refused (429)")
      ->check(integer_from(0, 1024));
  app.add_option("--name", name, "the model's name for clients (empty: from --target)");
  if (auto code = parser.parse(argc, argv)) return *code;

  proposer_options.resolve(target);
  decode::check_sampling(sampling.sampling);
  const auto model = target.load();
  const auto proposer = proposer_options.make(model);
  options.drafter = proposer ? proposer->name() : "none (plain decoding)";
  if (proposer && !proposer_options.drafter.empty()) options.drafter = proposer_options.drafter;
  serve::Served served = make_served(model, sampling);
  served.name = name.empty() ? model_name(target.resolved_path()) : name;
  served.has_seed = app.count("--seed") > 0;

  serve::Server server(served, *model.target, proposer.get(), options);
  fmt::print("{}: {}, drafts: {}, {} slots; Ctrl-C ends it\n", server.url(), served.name,
             options.drafter, options.scheduler.num_slots);
  std::fflush(stdout);
  server.run([] { return stop_requested(); });
  const serve::SchedulerStatus status = server.scheduler().status();
  log_info("served {} requests, {} tokens, tau {:.2f}", status.finished, status.tokens,
           status.counts.tau());
  return 0;
}

}  // namespace dflash::cli
