// export: a drafter in another program's form; what that form cannot say is refused.
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "cli/drafters.h"
#include "cli/verbs.h"
#include "draft/average.h"

namespace dflash::cli {
namespace {

namespace fs = std::filesystem;

/// Forms that hold something of the target: GGUF its vocabulary, DeepSpec its tables, speculators
/// the rows of a reduced vocabulary; unless the drafter brings its own.
bool needs_target(const draft::Drafter& drafter, draft::Format format) {
  const draft::OwnTables& own = drafter.own_tables();
  switch (format) {
    case draft::Format::kGguf:
      return true;
    case draft::Format::kDeepSpec:
      return !own.embed_VD.defined() || !own.head_VD.defined();
    case draft::Format::kSpeculators:
      return !drafter.spec().draft_ids.empty() && !own.head_VD.defined();
    case draft::Format::kZlab:
      break;
  }
  return false;
}

std::shared_ptr<draft::Drafter> load_mean(const fs::path& path,
                                          const std::vector<std::string>& others) {
  auto drafter = draft::load_drafter(path, nn::Compute::kF32);
  std::vector<std::shared_ptr<draft::Drafter>> loaded;
  for (const std::string& other : others) {
    loaded.push_back(draft::load_drafter(resolve_drafter(other), nn::Compute::kF32));
  }
  if (!others.empty()) draft::average_in(*drafter, loaded);
  return drafter;
}

}  // namespace

int run_export(int argc, char** argv) {
  VerbParser parser("export", "Writes a drafter in the form that another program reads.");
  TargetOptions target;
  std::vector<std::string> others;
  std::string drafter_path, out, format_text, dtype = "f32", verifier;
  auto& app = parser.app();
  app.add_option("drafter", drafter_path, "drafter in any form, or a run folder")->required();
  app.add_option("--average", others,
                 "write the mean of the drafter and of these, trained from one beginning");
  app.add_option("--format", format_text,
                 "zlab (z-lab, SGLang, vLLM), speculators (vLLM), deepspec, or gguf (llama.cpp)")
      ->required()
      ->check(CLI::IsMember({"zlab", "speculators", "deepspec", "gguf"}));
  app.add_option("--out", out, "folder, or a .gguf file")->required();
  app.add_option("--dtype", dtype, "type of the weights")->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--target", target.path,
                 "the drafter's target: folder or .gguf file (empty: the embedded default)");
  app.add_option("--verifier", verifier,
                 "name of the target in speculators' config (empty: the path of --target)");
  if (auto code = parser.parse(argc, argv)) return *code;

  const auto format = draft::parse_format(format_text);
  if (format != draft::Format::kGguf) claim_folder(out, "config.json");
  const auto storage = nn::parse_compute(dtype);
  const fs::path path = resolve_drafter(drafter_path);
  if (fs::exists(out) && fs::equivalent(path, out)) {
    fail("export: {}: expected a new place, got the drafter itself", out);
  }
  target.dtype = "f32";  // rows of its tables are copied as they are
  auto drafter = load_mean(path, others);
  draft::TargetParts parts;
  if (!target.path.empty() || needs_target(*drafter, format)) {
    const auto model = target.load();
    warn_of_another_target(*drafter, path, model);
    drafter->pack();
    // What equals the target's need not travel.
    draft::drop_borrowed_tables(*drafter, model.target->table().weight_VD,
                                model.target->head().linear.weight);
    decode::make_draft_proposer(drafter, *model.target);  // whether it fits at all
    parts = target_parts(target.resolved_path(), model);
  }
  if (format == draft::Format::kSpeculators) {
    parts.verifier = verifier_of(verifier.empty() ? target.resolved_path().string() : verifier);
  }
  draft::export_drafter(*drafter, out, format, storage, parts);
  log_info("{}: {} in {}, proposals a pass: {}", out, draft::format_name(format), dtype,
           drafter->spec().rule.block_size - 1 + drafter->spec().rule.slot_shift);
  return 0;
}

}  // namespace dflash::cli
