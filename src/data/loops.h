// Finds answers that loop: "FizzFizzFizz...", "elif elif elif...", a line said over and over. Used
// by prepare (drop them) and by evaluation (report them). Works on token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dflash::data {

struct LoopOptions {
  int64_t max_period = 64;        // longest repeated unit looked for, in tokens
  int64_t min_copies = 4;         // a loop is a unit said at least so often without a break ...
  int64_t min_tail_tokens = 24;   // ... that fills at least so many tokens at the very end, or
  double max_share = 0.5;         // ... more than this share of the whole ...
  int64_t min_share_tokens = 32;  // ... when the whole has at least so many tokens
};

struct Loop {
  bool at_tail = false;  // the text ends inside the loop
  int64_t begin = 0;     // first token of the longest loop found
  int64_t period = 0;    // its unit, in tokens
  int64_t length = 0;    // its tokens, all copies together
  double share = 0;      // tokens covered by any loop / all tokens
};

/// Nothing when `ids` do not loop. Give an answer without its stop token, or the tail is not seen.
std::optional<Loop> find_loop(std::span<const int64_t> ids, const LoopOptions& options = {});

}  // namespace dflash::data
