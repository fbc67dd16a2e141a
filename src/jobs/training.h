// One training run from folders: dataset, features (files or the live target), a fresh or given
// drafter, the run folder.
#pragma once

#include <filesystem>
#include <memory>

#include "base/comm.h"
#include "data/dataset.h"
#include "jobs/model.h"
#include "jobs/new_drafter.h"
#include "train/options.h"
#include "train/run.h"

namespace dflash::jobs {

struct TrainingOptions {
  std::filesystem::path dataset;  // folder from prepare
  std::filesystem::path
      features;               // folder from capture; empty: the target runs in the same process
  std::filesystem::path out;  // run folder
  std::filesystem::path init_from;  // drafter to start from (weights only); empty: a fresh one
  bool resume = false;              // go on from the newest complete checkpoint of `out`
  double max_seconds = 0;           // fit the schedule to this time; 0: epochs or steps decide
  NewDrafterOptions drafter;        // of a fresh drafter
  train::TrainOptions train;
  Json config = Json::object();  // resolved command line, for run.json
  Comm* comm = &solo_comm();     // the ranks that train together, all with these options
};

/// Logs the header, shows progress, polls for signals; one that another rank got counts as this
/// one's too. Errors: files that do not fit each other.
train::RunResult train_drafter(const Model& model, const TrainingOptions& options,
                               const std::function<Json(const draft::Drafter&)>& validate);

}  // namespace dflash::jobs
