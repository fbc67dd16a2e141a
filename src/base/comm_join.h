// How ranks find each other: comm_tcp.h's first part.
#pragma once

#include <vector>

#include "base/comm_tcp.h"
#include "base/sockets.h"

namespace dflash {

/// A connection to every other rank, by rank; the own place is closed.
std::vector<Socket> meet_ranks(const RankPlace& place);

/// Sends last words and waits for nothing but the socket, `seconds` at most.
void send_last_words(const Socket& socket, std::string_view why, double seconds);

}  // namespace dflash
