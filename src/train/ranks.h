// What the ranks of a training run (base/comm.h) do together around a step: they deal out its rows,
// add up their gradients, and prove to each other that they are alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/comm.h"
#include "base/json.h"
#include "train/batch.h"
#include "train/checkpoint.h"

namespace dflash::train {

struct Dealing {
  int world = 1;
  int64_t turn = 0;        // moves on by one a step, so that nobody always gets the largest share
  int64_t block_size = 1;  // rows of the drafter an anchor makes
};

/// The rows of every rank, with about as much work for each: together what one process would take.
/// A row of more than a rank's share is cut between two documents, which do not see each other. A
/// rank may get none.
std::vector<std::vector<RowStream::Row>> deal_rows(const std::vector<RowStream::Row>& rows,
                                                   const Dealing& dealing);

/// Every .grad becomes the sum over the ranks; one that is missing counts as 0.
void sum_gradients(Comm& comm, const std::map<std::string, at::Tensor>& parameters);

/// Numbers that any rank found, in order, each once.
std::vector<int64_t> gather_numbers(Comm& comm, const std::vector<int64_t>& own);

/// Error on all ranks naming the first setting that differs (TR-04).
void expect_same_settings(Comm& comm, const Json& own);
/// Error on all ranks naming the first tensor whose bits differ; `when` for the message.
void expect_same_tensors(Comm& comm, const std::map<std::string, at::Tensor>& tensors,
                         std::string_view when);

/// The newest complete checkpoint as rank 0 sees it (CK-07). Error on a rank that lacks it.
std::optional<CheckpointEntry> common_checkpoint(Comm& comm, const std::filesystem::path& folder);

}  // namespace dflash::train
