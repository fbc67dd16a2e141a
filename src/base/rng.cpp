#include "base/rng.h"

#include <cmath>

namespace dflash {
namespace {

uint64_t finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

}  // namespace

uint64_t mix(std::initializer_list<uint64_t> keys) {
  uint64_t state = 0x243f6a8885a308d3ULL;
  for (uint64_t key : keys) state = finalise(state + kGolden + finalise(key + kGolden));
  return state;
}

uint64_t mix_text(std::string_view text) {
  uint64_t hash = mix({text.size()});
  for (char byte : text) hash = mix({hash, static_cast<unsigned char>(byte)});
  return hash;
}

double uniform01(std::initializer_list<uint64_t> keys) {
  return static_cast<double>(mix(keys) >> 11) * 0x1.0p-53;
}

uint64_t uniform_below(uint64_t bound, std::initializer_list<uint64_t> keys) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(mix(keys)) * bound) >> 64);
}

double normal01(std::initializer_list<uint64_t> keys) {
  const uint64_t bits = mix(keys);
  const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
  const double v = static_cast<double>(finalise(bits + kGolden) >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * M_PI * v);
}

}  // namespace dflash
