// deepseek-ai/DeepSpec's folder (MODELS.md 4.3): flat keys, anchor-first slots, own tables. Read by
// zlab_load.cpp, whose parser takes flat keys too; written here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "draft/drafter.h"

namespace dflash::draft {

/// By the name of its class, which plain drafters bear as well (Markov rank 0).
bool is_deepspec_config(const Json& config);

/// Why a drafter cannot be written in this form; empty: it can.
std::vector<std::string> deepspec_limits(const Drafter& drafter);

/// Both tables are needed: the form has no others.
void save_deepspec(const Drafter& drafter, const std::filesystem::path& folder, nn::Compute storage,
                   const OwnTables& tables);

}  // namespace dflash::draft
