// What a planned run is made of: from a target's sizes, the options of train and, where there is
// one, the dataset -> plain shapes.
#pragma once

#include <filesystem>

#include "jobs/training.h"
#include "nn/compute.h"
#include "plan/shapes.h"

namespace dflash::cli {

/// Of a folder, its config.json alone, or a .gguf file.
plan::TargetShape target_shape(const std::filesystem::path& path, nn::Compute compute);

/// A fresh drafter as train would make it, or the one that --init-from names (its config only).
plan::DrafterShape drafter_shape(const std::filesystem::path& target,
                                 const jobs::TrainingOptions& options);

struct StepRequest {
  const jobs::TrainingOptions& options;
  nn::Compute compute;
  int64_t document_tokens;  // mean length, where there is no dataset to look at
  bool stored_features;
};
/// With a dataset: its largest row and pass, and the mean step, of the run's first epoch.
plan::StepShape step_shape(const StepRequest& request, const plan::DrafterShape& drafter);

}  // namespace dflash::cli
