// z-lab's folder, and DeepSpec's, which is the same with flat keys, own tables and anchor-first
// slots.
#include "base/error.h"
#include "base/files.h"
#include "draft/folder_tensors.h"
#include "draft/zlab.h"

namespace dflash::draft {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> read_draft_ids(const io::Checkpoint& file, const Json& config) {
  const auto ids = read_ids(file, "draft_ids");
  const auto own = config.find("dflash_cpp");
  const auto size = own == config.end() ? Json() : own->value("draft_vocab_size", Json());
  if (!ids && size.is_null()) return {};
  if (!ids || size != ids->size()) {
    fail("{}: draft_ids: expected an int64 tensor of dflash_cpp.draft_vocab_size {} ids, got {}",
         file.path().string(), size.dump(), ids ? fmt::format("{} values", ids->size()) : "none");
  }
  return *ids;
}

struct Opened {
  DraftSpec spec;
  std::shared_ptr<const io::Checkpoint> file;
};

Opened open_folder(const fs::path& folder, int64_t target_num_layers) {
  if (fs::exists(folder / "mask_embedding.pt")) {
    fail("{}: an own mask embedding is not implemented", (folder / "mask_embedding.pt").string());
  }
  const fs::path path = folder / "config.json";
  const Json config = read_json(path);
  Opened opened{parse_zlab_config(config, path.string(), target_num_layers),
                io::Checkpoint::open(folder)};
  DraftSpec& spec = opened.spec;
  for (const io::TensorView& view : opened.file->tensors()) {
    const std::string name = canonical_name(view.name);
    refuse_foreign(folder.string(), name);
    if (name == "d2t" || name == "t2d") {
      fail(
          "{}: {}: speculators' vocabulary map without speculators' config\n  hint: expected "
          "speculators_model_type in config.json",
          folder.string(), name);
    }
    // The file's fc knows better than a config without the key target_hidden_size.
    if (name == "fc.weight") {
      spec.target_hidden_size = target_hidden_size(folder.string(), spec, view.shape);
    }
  }
  spec.draft_ids = read_draft_ids(*opened.file, config);
  check_spec(spec);
  return opened;
}

}  // namespace

DraftSpec read_zlab_config(const fs::path& folder, int64_t target_num_layers) {
  return open_folder(folder, target_num_layers).spec;
}

std::shared_ptr<Drafter> load_zlab(const fs::path& folder, nn::Compute compute) {
  const Opened opened = open_folder(folder, 0);
  FolderTensors tensors = read_folder_tensors(opened.file, {"draft_ids"});
  auto drafter = Drafter::from_weights(opened.spec, compute, tensors.parameters);
  drafter->set_own_tables(std::move(tensors.tables));
  drafter->pack();
  return drafter;
}

}  // namespace dflash::draft
