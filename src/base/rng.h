// Counter-based random numbers: a draw depends on its keys only, never on what was drawn before.
// So data order, anchors and sampling resume at any step and do not depend on threads or batches.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace dflash {

/// 64 well-mixed bits of the keys (SplitMix64 finaliser chained over them).
uint64_t mix(std::initializer_list<uint64_t> keys);

/// A key from text.
uint64_t mix_text(std::string_view text);

/// Uniform in [0, 1) with 53 bits.
double uniform01(std::initializer_list<uint64_t> keys);

/// Uniform integer in [0, bound); bound > 0.
uint64_t uniform_below(uint64_t bound, std::initializer_list<uint64_t> keys);

/// Standard normal (Box-Muller over two draws of the keys).
double normal01(std::initializer_list<uint64_t> keys);

}  // namespace dflash
