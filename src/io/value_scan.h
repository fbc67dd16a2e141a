// Where a JSON value ends, found byte by byte without parsing it: brackets are matched, strings
// skipped. Of what is wrong in the value it sees only what makes its end uncertain; the parser says
// the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dflash::io {

class ValueScan {
 public:
  enum class Step { kMore, kDone, kDamaged };
  struct Scanned {
    size_t used = 0;  // bytes taken; under kDamaged the last one is the bad one
    Step step = Step::kMore;
  };

  /// Forgets everything but what whole values taught of keys; the next byte is a value's first.
  void restart();
  /// Takes bytes up to the value's end.
  Scanned scan(std::string_view bytes);
  /// Under kDamaged: why.
  const std::string& problem() const { return problem_; }

  /// The key that every whole value so far began with, when these are objects and no object inside
  /// any of them begins with it; else empty. Then `,{"key":` can only be the start of the next
  /// value: in a string its quotes would be escaped.
  std::string_view opening_key() const { return key_is_safe_ ? opening_key_ : std::string_view(); }

 private:
  enum class Place { kStart, kOutside, kString, kEscape, kScalar };

  Step take(char byte);
  Step take_outside(char byte);
  Step take_in_string(char byte);
  Step open(char bracket);
  Step close(char bracket);
  Step damaged(std::string why);
  void start_string();
  void end_key();
  Step done();

  Place place_ = Place::kStart;
  std::string open_;                                  // brackets not closed yet
  std::string problem_;                               // under kDamaged
  bool at_first_key_ = false, in_first_key_ = false;  // of the innermost object
  std::string key_, own_key_;                         // the last first key, this value's
  bool own_key_inside_ = false;                       // own_key_ opens an object inside, too
  std::string opening_key_;
  bool key_is_safe_ = true;
};

}  // namespace dflash::io
