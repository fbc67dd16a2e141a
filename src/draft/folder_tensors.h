// The tensors of a drafter's folder under canonical names, whichever program wrote it. Internal to
// draft/.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "io/safetensors.h"

namespace dflash::draft {

/// z-lab's name of a tensor spelled by another program ("model.", "midlayer.", "encoder.fc").
std::string canonical_name(std::string name);

/// Error "WHERE: NAME: FEATURE is not implemented" for a tensor that means another model than ours.
void refuse_foreign(const std::string& where, const std::string& name);

/// F = taps * the target's hidden size, by the shape of fc. Error: no multiple of the taps.
int64_t target_hidden_size(const std::string& where, const DraftSpec& spec,
                           const std::vector<int64_t>& fc_shape);

struct FolderTensors {
  std::map<std::string, at::Tensor> parameters;  // f32 copies of our own, canonical names
  OwnTables tables;                              // as stored, copies too
};

/// Everything but the ids and the names in `skip`. Error: foreign tensors, a type that is no float,
/// two spellings of one name.
FolderTensors read_folder_tensors(const std::shared_ptr<const io::Checkpoint>& file,
                                  const std::vector<std::string>& skip);

/// An int64 tensor as a list, or nothing when absent. Error: another type or more dimensions.
std::optional<std::vector<int64_t>> read_ids(const io::Checkpoint& file, const std::string& name);

}  // namespace dflash::draft
