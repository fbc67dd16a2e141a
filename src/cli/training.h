// Options of a training run on the command line, shared by train and quickstart.
#pragma once

#include <functional>
#include <string>

#include "cli/options.h"
#include "jobs/training.h"

namespace dflash::cli {

/// Plain text forms of what TrainingOptions holds as types.
struct TrainingFlags {
  std::string dataset, features, out = "run", init_from;
  double minutes = 0;
  std::string loss = "ce", labels = "target", weighting = "decay", optimizer = "muon",
              noise = "none";
  void apply(jobs::TrainingOptions& options) const;
};

void add_drafter_options(CLI::App& app, jobs::NewDrafterOptions& options);
void add_train_options(CLI::App& app, train::TrainOptions& options, TrainingFlags& flags);

/// Validation by real decoding, batched, on the first held-out prompts.
struct ValidationOptions {
  std::string prompts;  // empty: none
  int64_t limit = 16;
  int64_t max_new_tokens = 64;

  void add(CLI::App& app);
  /// Empty without prompts. `model` must outlive the callback. Only rank 0 of `comm` reads the
  /// prompts and is ever asked.
  std::function<Json(const draft::Drafter&)> callback(const jobs::Model& model,
                                                      const Comm& comm = solo_comm()) const;
};

}  // namespace dflash::cli
