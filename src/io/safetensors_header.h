// One safetensors file: bytes -> typed views, with every rule of the reference reader. Internal to
// io; users open a Checkpoint.
#pragma once

#include <memory>
#include <vector>

#include "io/mapped_file.h"
#include "io/safetensors.h"

namespace dflash::io {

struct ParsedSafetensors {
  std::vector<TensorView> tensors;  // in the order of their bytes
  Metadata metadata;
};

/// Views point into `file`. Errors name the file and the tensor.
ParsedSafetensors parse_safetensors(const MappedFile& file);

}  // namespace dflash::io
