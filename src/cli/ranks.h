// Several processes for one verb: started by it (--nproc) or by another launcher (base/rank_env.h).
#pragma once

#include <functional>

#include "base/comm.h"
#include "cli/options.h"

namespace dflash::cli {

struct RankOptions {
  int64_t nproc = 0;         // 0: what the environment says
  double patience = 1800.0;  // seconds

  void add(CLI::App& app);
  /// Runs `work` as one of several ranks, as the only one, or starts ranks of this command line and
  /// waits for them. Nothing may have been loaded yet. Returns the exit code. What a rank throws,
  /// the others are told; only rank 0 logs.
  int run(VerbParser& parser, int argc, char** argv,
          const std::function<int(Comm& comm)>& work) const;
};

}  // namespace dflash::cli
