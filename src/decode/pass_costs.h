// What passes cost here, measured while they run: seconds by the number of rows. Never decides what
// a text says, only how many drafts are worth their time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace dflash::decode {

/// The clock of costs: seconds that the calling thread ran. It takes part in everything a pass
/// does, so on an idle machine that is the time that passes; on a busy one it leaves out what
/// others took.
double thread_seconds();

/// The lower quartile of the last times: other work on the machine only ever adds to one.
class RunningCost {
 public:
  void add(double seconds);
  /// Forgets a little in favour of `seconds`.
  void lean(double seconds) { value_ += 0.002 * (seconds - value_); }
  double value() const { return value_; }  // 0: unknown

 private:
  static constexpr size_t kKept = 12;
  std::vector<double> last_;
  size_t next_ = 0;
  double value_ = 0;
};

class PassCosts {
 public:
  /// `tiles`: the products' kernels take 16 rows for about the price of one.
  explicit PassCosts(bool tiles) : tiles_(tiles) {}

  /// Rows of one kind cost about the same: 1, 2, 3, 4, 6, 8, 12, 16, then blocks of 16.
  static int64_t widest_alike(int64_t rows);

  /// Kinds that were not run lately come to look as cheap as this one: a slow moment of the machine
  /// must not rule out a width for good.
  void add(int64_t rows, double seconds);
  /// Of `rows`. What was never run costs as much more than fewer rows as it usually does, or no
  /// more a row than more of them did, so that it gets tried. Nothing known: in passes of one row.
  double of(int64_t rows) const;
  bool known() const { return !costs_.empty(); }

 private:
  double usual(int64_t rows) const;

  bool tiles_;
  std::map<int64_t, RunningCost> costs_;
};

}  // namespace dflash::decode
