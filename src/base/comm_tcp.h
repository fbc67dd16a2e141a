// Ranks over TCP: every two of them share a connection. Rank 0 listens at the master address, the
// others at the address from which they reach it. Nothing is encrypted: for networks that one
// trusts; a token that all ranks of a run share keeps strangers out.
//
// A frame carries what its sender does (kind, number of the collective, number of values), so ranks
// that part ways fail at once instead of waiting. Large sums: each rank adds up its share in the
// order of the ranks, and the shares go round.
#pragma once

#include <memory>
#include <string>

#include "base/comm.h"
#include "base/error.h"

namespace dflash {

/// Another rank failed and said why.
class ToldError : public Error {
 public:
  using Error::Error;
};

/// One rank's place among the others.
struct RankPlace {
  int rank = 0, world = 1;
  std::string address = "127.0.0.1";  // of rank 0
  uint16_t port = 29500;              // at which rank 0 listens
  int listener = -1;                  // rank 0: a socket that listens there already; this closes it
  std::string token = {};             // the same for all ranks of a run, at most 64 bytes
  double join_seconds = 300;          // until all ranks are there
  double peer_seconds = 1800;         // that another rank may be silent in a collective
};

/// Returns when all ranks are there. Error: one is missing after join_seconds, two claim one
/// number, they disagree on how many there are; or a signal came while it waited.
std::unique_ptr<Comm> join_ranks(const RankPlace& place);

}  // namespace dflash
