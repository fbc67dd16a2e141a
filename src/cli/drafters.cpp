#include "cli/drafters.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/checks.h"
#include "draft/formats.h"
#include "nn/gemm_bf16.h"
#include "text/tokenizer_spec.h"
#include "train/checkpoint.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

bool is_complete(const fs::path& checkpoint) {
  return fs::exists(checkpoint / "COMPLETE") && fs::is_directory(checkpoint / "model");
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& proposer_kinds() {
  static const std::vector<std::pair<std::string, std::string>> kinds = {
      {"auto",
       "with a drafter its tree and the text's n-grams together, where they pay; else none"},
      {"drafter", "the drafter's likeliest chain, always"},
      {"tree", "the drafter's likeliest tree, always"},
      {"all", "the drafter's tree and the text's n-grams together, always"},
      {"chains", "the drafter's chain and the n-grams' chain together, always"},
      {"lookup", "what followed the last three tokens before (no drafter)"},
      {"lookup-tree", "the n-grams' likeliest tree, where it pays (no drafter)"},
      {"none", "plain decoding"}};
  return kinds;
}

namespace {

decode::CombinedOptions combined_options(const jobs::Model& model, int64_t max_proposals) {
  const nn::Compute compute = model.target->compute();
  decode::CombinedOptions options;
  options.max_rows = max_proposals > 0 ? max_proposals + 1 : decode::free_rows(compute);
  options.tiles = nn::tile_products_supported(compute);
  return options;
}

}  // namespace

std::unique_ptr<decode::Proposer> make_proposer(const std::string& kind, const fs::path& drafter,
                                                const jobs::Model& model, int64_t max_proposals) {
  auto chain = decode::make_draft_proposer(
      load_drafter(drafter, model), *model.target,
      {.max_proposals = kind == "drafter" ? max_proposals : int64_t{0}});
  if (kind == "drafter") {
    warn_of_more(*chain, max_proposals);
    return chain;
  }
  decode::CombinedOptions options = combined_options(model, max_proposals);
  options.adaptive = kind == "auto";
  options.lookup = kind != "tree";
  if (kind == "chains") options.top = 1;
  return decode::make_combined_proposer(std::move(chain), options);
}

std::unique_ptr<decode::Proposer> make_lookup(const std::string& kind, const jobs::Model& model,
                                              int64_t max_proposals) {
  if (kind == "lookup-tree") {
    return decode::make_combined_proposer(nullptr, combined_options(model, max_proposals));
  }
  decode::LookupOptions options;
  if (max_proposals > 0) options.max_proposals = max_proposals;
  return decode::make_lookup_proposer(options);
}

void ProposerOptions::add(CLI::App& app) {
  std::vector<std::string> names;
  std::string help = "what drafts; none changes the text:";
  for (const auto& [name, meaning] : proposer_kinds()) {
    names.push_back(name);
    help += fmt::format("\n{}: {}", name, meaning);
  }
  app.add_option("--proposer", kind, help)->check(CLI::IsMember(names));
  app.add_option(
      "--drafter", drafter,
      "drafter in any form (see import), or a run folder (empty: the bundled one, when the "
      "target is its own)");
  app.add_option("--draft-tokens", max_proposals,
                 "drafts a pass at most (0: block size - 1; of a tree 15, or 7 without AMX)")
      ->check(integer_from(0, 4096));
}

fs::path resolve_drafter(const fs::path& path) {
  if (!fs::exists(path)) fail("no such drafter: {}", path.string());
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / "run" / "run.json")) return resolve_drafter(path / "run");  // a quickstart
  if (fs::exists(path / "config.json") && !fs::exists(path / "run.json")) return path;
  if (is_complete(path)) return path / "model";
  const fs::path checkpoints = path / "checkpoints";
  if (!fs::is_directory(checkpoints)) {
    fail(
        "not a drafter: {}: expected config.json + model.safetensors, a .gguf file, or a run "
        "folder",
        path.string());
  }
  auto found = train::best_checkpoint(checkpoints);
  if (!found) found = train::latest_checkpoint(checkpoints);
  if (!found) fail("no complete checkpoint in {}", checkpoints.string());
  return found->path / "model";
}

void warn_of_another_target(const draft::Drafter& drafter, const fs::path& folder,
                            const jobs::Model& model) {
  const auto& spec = drafter.spec();
  if (!spec.target_fingerprint.empty() && spec.target_fingerprint != model.target->fingerprint()) {
    log_warning(
        "{} was trained for another target (fingerprint {:.8}, this one is {:.8}): the text "
        "stays right, acceptance may be poor",
        folder.string(), spec.target_fingerprint, model.target->fingerprint());
  }
  if (!spec.tokenizer_fingerprint.empty() &&
      spec.tokenizer_fingerprint != model.tokenizer->fingerprint()) {
    log_warning("{} was trained with another tokenizer or chat template", folder.string());
  }
}

std::shared_ptr<draft::Drafter> load_drafter(const fs::path& path, const jobs::Model& model) {
  const fs::path folder = resolve_drafter(path);
  auto drafter = draft::load_drafter(folder, model.target->compute());
  warn_of_another_target(*drafter, folder, model);
  drafter->pack();
  return drafter;
}

void warn_of_more(const decode::Proposer& proposer, int64_t max_proposals) {
  if (max_proposals <= proposer.max_proposals()) return;
  log_warning("--draft-tokens {}: {} proposes at most {} a pass", max_proposals, proposer.name(),
              proposer.max_proposals());
}

std::string take_bundled_drafter(const TargetOptions& target) {
  const auto found = jobs::bundled_drafter_for(target.path);
  if (!found) return "";
  log_info("drafter: the bundled one, {}", found->string());
  return found->string();
}

void ProposerOptions::resolve(const TargetOptions& target) {
  const bool without = kind == "none" || kind == "lookup" || kind == "lookup-tree";
  if (!without && drafter.empty()) drafter = take_bundled_drafter(target);
  if (!without && kind != "auto" && drafter.empty()) {
    fail("--proposer {} needs --drafter FOLDER", kind);
  }
  if (without && !drafter.empty()) {
    fail("--proposer {}: expected no --drafter, got {}", kind, drafter);
  }
}

draft::TargetParts target_parts(const fs::path& path, const jobs::Model& model) {
  const target::Target& target = *model.target;
  draft::TargetParts parts;
  parts.embed_VD = target.table().weight_VD;
  parts.head_VD = target.head().linear.weight;
  parts.max_positions = target.config().max_positions;
  parts.tokenizer =
      fs::is_directory(path)
          ? text::gguf_entries(text::read_tokenizer_folder(path), target.config().vocab_size)
          : io::copy_entries(*io::GgufFile::open(path), "tokenizer.ggml.");
  return parts;
}

draft::Verifier verifier_of(const std::string& name_or_path) {
  draft::Verifier verifier{name_or_path, {}};
  const fs::path config = fs::path(name_or_path) / "config.json";
  if (fs::exists(config)) {
    verifier.architectures = read_json(config).value("architectures", std::vector<std::string>());
  }
  return verifier;
}

std::unique_ptr<decode::Proposer> ProposerOptions::make(const jobs::Model& model) const {
  if (kind == "none" || (kind == "auto" && drafter.empty())) return nullptr;
  return drafter.empty() ? make_lookup(kind, model, max_proposals)
                         : make_proposer(kind, drafter, model, max_proposals);
}

}  // namespace dflash::cli
