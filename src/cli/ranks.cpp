#include "cli/ranks.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>

#include "base/comm_tcp.h"
#include "base/error.h"
#include "base/launch.h"
#include "base/progress.h"
#include "base/rank_env.h"
#include "cli/checks.h"

namespace dflash::cli {
namespace {

int start_here(VerbParser& parser, int64_t count, int argc, char** argv) {
  const auto processes = static_cast<int>(count);
  const int share = std::max(1, omp_get_max_threads() / processes);
  const int threads = parser.app().get_option("--threads")->as<int>();
  log_info("{} processes of {}", processes, counted(threads > 0 ? threads : share, "threads"));
  return launch_ranks({.count = processes, .arguments = {argv, argv + argc}, .threads = share});
}

int run_as_rank(const RankPlace& place, const std::function<int(Comm& comm)>& work) {
  if (place.rank > 0) {
    set_log_level(3);
    Progress::set_enabled(false);
  }
  std::unique_ptr<Comm> comm;
  try {
    comm = join_ranks(place);
    return work(*comm);
  } catch (const std::exception& error) {
    if (comm) comm->leave(error.what());
    const bool told = dynamic_cast<const ToldError*>(&error) != nullptr;
    if (told && std::getenv("DFLASH_LAUNCHED")) return 1;  // it stands on this terminal already
    if (place.rank == 0 || dynamic_cast<const Error*>(&error) == nullptr) throw;
    fail("rank {}: {}", place.rank, error.what());
  }
}

}  // namespace

void RankOptions::add(CLI::App& app) {
  app.add_option("--nproc", nproc,
                 "processes on this machine that train together (0: what RANK and WORLD_SIZE, "
                 "Open MPI or SLURM say)")
      ->check(integer_from(0, 1024));
  app.add_option("--rank-timeout", patience,
                 "seconds that another process may be silent while it is waited for")
      ->check(number_from(1));
}

int RankOptions::run(VerbParser& parser, int argc, char** argv,
                     const std::function<int(Comm& comm)>& work) const {
  if (nproc == 1) return work(solo_comm());
  auto place = place_from_environment([](const char* name) { return std::getenv(name); });
  if (!place) return nproc == 0 ? work(solo_comm()) : start_here(parser, nproc, argc, argv);
  if (nproc != 0 && nproc != place->world) {
    fail("--nproc {}: the environment says that there are {} ranks: expected one of the two", nproc,
         place->world);
  }
  place->peer_seconds = patience;
  return run_as_rank(*place, work);
}

}  // namespace dflash::cli
