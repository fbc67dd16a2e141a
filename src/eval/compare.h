// Is a text the plain one? Where not: the first difference, and how close the target's choice was
// there (R-EV-6, FAULTS DEC-14).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "target/target.h"

namespace dflash::eval {

struct Difference {
  std::string task;
  int64_t index = 0;                             // of the answer's first token that differs
  int64_t plain_token = -1, drafted_token = -1;  // -1: the text had ended
  double margin = 0;                             // largest minus second largest logit there
  bool tie = false;  // greedy, and the margin is within rounding: either token is right
};

/// Margins up to this are rounding of the compute type, not a choice.
double tie_margin(nn::Compute compute);

std::optional<Difference> first_difference(const target::Target& target,
                                           std::span<const int64_t> prompt,
                                           std::span<const int64_t> plain,
                                           std::span<const int64_t> drafted, bool greedy);

}  // namespace dflash::eval
