#include "base/rank_env.h"

#include <array>
#include <charconv>
#include <string_view>

#include "base/error.h"

namespace dflash {
namespace {

constexpr int64_t kMaxRanks = 1024;
constexpr uint16_t kDefaultPort = 29500;  // torch's

struct Names {
  const char *rank, *world;
};
constexpr std::array kLaunchers = {Names{"RANK", "WORLD_SIZE"},
                                   Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   Names{"SLURM_PROCID", "SLURM_NTASKS"}};

std::string text_of(const Environment& get, const char* name) {
  const char* value = get(name);
  return value == nullptr ? std::string() : std::string(value);
}

int64_t number(const Environment& get, const char* name, int64_t least, int64_t most) {
  const std::string text = text_of(get, name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    fail("environment: {}: expected a number from {} to {}, got '{}'", name, least, most, text);
  }
  return value;
}

/// The script of a batch job is not one of its tasks, though it bears the first one's number.
bool is_batch_script(const Environment& get) {
  return text_of(get, "ENVIRONMENT") == "BATCH" && get("SLURM_STEP_ID") == nullptr;
}

const Names* launcher(const Environment& get) {
  for (const Names& names : kLaunchers) {
    const bool slurm = std::string_view(names.rank).starts_with("SLURM");
    if (get(names.world) == nullptr || (slurm && is_batch_script(get))) continue;
    if (get(names.rank) != nullptr) return &names;
    if (std::string_view(names.rank) == "RANK" && number(get, names.world, 1, kMaxRanks) > 1) {
      fail("environment: WORLD_SIZE is set: expected RANK with it, the number of this process");
    }
  }
  return nullptr;
}

std::string master_address(const Environment& get, int64_t world) {
  const std::string given = text_of(get, "MASTER_ADDR");
  if (!given.empty()) return given;
  const std::string world_text = std::to_string(world);
  const bool here = text_of(get, "OMPI_COMM_WORLD_LOCAL_SIZE") == world_text ||
                    text_of(get, "SLURM_JOB_NUM_NODES") == "1" ||
                    text_of(get, "LOCAL_WORLD_SIZE") == world_text;
  if (here) return "127.0.0.1";
  fail(
      "environment: MASTER_ADDR: expected the address of rank 0's machine ({} ranks), got none\n"
      "  hint: 127.0.0.1 when all run on this machine",
      world);
}

uint16_t master_port(const Environment& get) {
  if (get("MASTER_PORT") == nullptr) return kDefaultPort;
  const auto port = static_cast<uint16_t>(number(get, "MASTER_PORT", 1, 65534));
  // torchrun's own agent listens there.
  return text_of(get, "TORCHELASTIC_USE_AGENT_STORE") == "True" ? port + 1 : port;
}

}  // namespace

std::optional<RankPlace> place_from_environment(const Environment& get) {
  const Names* names = launcher(get);
  if (names == nullptr) return std::nullopt;
  const int64_t world = number(get, names->world, 1, kMaxRanks);
  if (world == 1) return std::nullopt;
  RankPlace place;
  place.world = static_cast<int>(world);
  place.rank = static_cast<int>(number(get, names->rank, 0, world - 1));
  place.address = master_address(get, world);
  place.port = master_port(get);
  place.token = text_of(get, get("DFLASH_RUN_TOKEN") ? "DFLASH_RUN_TOKEN" : "SLURM_JOB_ID");
  if (place.token.size() > 64) fail("environment: DFLASH_RUN_TOKEN: expected at most 64 bytes");
  if (place.rank == 0 && get("DFLASH_LISTENER") != nullptr) {
    place.listener = static_cast<int>(number(get, "DFLASH_LISTENER", 3, 1 << 20));
  }
  return place;
}

}  // namespace dflash
