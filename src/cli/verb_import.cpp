// import: a drafter of any form in the form that this program writes (z-lab's, with own keys), so
// that it says whom it was made for and training can go on from it.
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "cli/drafters.h"
#include "cli/verbs.h"
#include "draft/zlab.h"

namespace dflash::cli {
namespace {

/// The drafter as this target's: its depth and fingerprints, without tables that equal the
/// target's. Error: it does not fit.
std::shared_ptr<draft::Drafter> tie_to(const jobs::Model& model,
                                       const std::shared_ptr<draft::Drafter>& given) {
  decode::make_draft_proposer(given, *model.target);
  if (draft::drop_borrowed_tables(*given, model.target->table().weight_VD,
                                  model.target->head().linear.weight)) {
    log_info("its tables are the target's: left out");
  }
  draft::DraftSpec spec = given->spec();
  spec.target_num_layers = model.target->config().num_layers;
  spec.target_fingerprint = model.target->fingerprint();
  spec.tokenizer_fingerprint = model.tokenizer->fingerprint();
  auto drafter = draft::Drafter::from_weights(spec, given->compute(), given->parameters());
  drafter->set_own_tables(given->own_tables());
  return drafter;
}

}  // namespace

int run_import(int argc, char** argv) {
  VerbParser parser("import", "Writes a drafter of any form as this program's own.");
  TargetOptions target;
  std::string drafter_path, out, dtype = "f32";
  auto& app = parser.app();
  app.add_option("drafter", drafter_path,
                 "folder (z-lab, speculators, DeepSpec), .gguf file, or run folder")
      ->required();
  app.add_option("--out", out, "folder to write")->required();
  app.add_option("--dtype", dtype, "type of the weights")->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--target", target.path,
                 "its target: checked, recorded, and equal tables left out (empty: none of this)");
  if (auto code = parser.parse(argc, argv)) return *code;

  claim_folder(out, "config.json");
  const auto path = resolve_drafter(drafter_path);
  if (std::filesystem::exists(out) && std::filesystem::equivalent(path, out)) {
    fail("import: {}: expected a new place, got the drafter itself", out);
  }
  auto drafter = draft::load_drafter(path, nn::Compute::kF32);
  if (!target.path.empty()) {
    target.dtype = "f32";  // tables are compared value for value
    drafter = tie_to(target.load(), drafter);
  }
  draft::save_zlab(*drafter, out, nn::parse_compute(dtype));
  log_info("{}: from {}", out, draft::format_name(draft::recognise(path)));
  return 0;
}

}  // namespace dflash::cli
