// Ranks as threads of the test, each with its own connection over the loopback.
#pragma once

#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/comm_tcp.h"
#include "base/log.h"
#include "base/sockets.h"

namespace dflash::testing {

/// A place for each of `world` ranks; rank 0's port is open already.
inline std::vector<RankPlace> rank_places(int world, double peer_seconds = 30) {
  const Socket listener = listen_at({"127.0.0.1", 0});
  std::vector<RankPlace> places;
  for (int r = 0; r < world; ++r) {
    RankPlace place{.rank = r, .world = world, .port = own_end(listener).port};
    if (r == 0) place.listener = ::dup(listener.fd());
    place.token = "test";
    place.join_seconds = 20;
    place.peer_seconds = peer_seconds;
    places.push_back(place);
  }
  return places;
}

/// Runs `work` once a rank, as a process does: what a rank throws, the others are told. Returns the
/// messages, "" for a rank that came through.
inline std::vector<std::string> run_ranks(const std::vector<RankPlace>& places,
                                          const std::function<void(Comm&)>& work) {
  std::vector<std::string> errors(places.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < places.size(); ++r) {
    threads.emplace_back([&, r] {
      std::unique_ptr<Comm> comm;
      try {
        comm = join_ranks(places[r]);
        work(*comm);
      } catch (const std::exception& error) {
        errors[r] = error.what();
        if (comm) comm->leave(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> run_ranks(int world, const std::function<void(Comm&)>& work) {
  return run_ranks(rank_places(world), work);
}

}  // namespace dflash::testing
