// The values of one JSON array in a file of any size, one after the other, in memory bounded by the
// largest value. A file that is cut off gives every whole value; a damaged value costs itself and
// what cannot be told from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/buffered_file.h"
#include "io/value_scan.h"

namespace dflash::io {

class ArrayReader {
 public:
  struct Item {
    std::string text;     // the value, from its first byte to its last
    std::string problem;  // not empty: there is no value here, and why, with the byte's number
  };

  /// Reads on from where `file`, which must outlive the reader, stands: at the array's start, or
  /// before it in a byte order mark and blanks.
  ArrayReader(BufferedFile& file, uint64_t max_value_bytes)
      : file_(file), max_value_bytes_(max_value_bytes) {}

  /// False at the end of the array or of the file. Error: after damage it cannot be told where the
  /// next value begins (see ValueScan::opening_key).
  bool next(Item& item);

  int64_t num_items() const { return num_items_; }  ///< items given so far
  /// Not empty after the last item when the file stops before the array's end: where.
  const std::string& cut_off() const { return cut_off_; }

  static bool starts_array(std::string_view head);

 private:
  enum class Place { kBefore, kFirst, kValue, kBetween, kAfter, kEnd };

  std::string_view window();
  void consume(size_t bytes);
  void put_back(std::string text);
  char next_solid();  // the byte after blanks, not consumed; 0: the file's end
  void skip_mark();
  bool step(Item& item);  // true: an item is there
  bool after_array(Item& item);
  void take_value(Item& item);
  void resume_after(Item& item, std::string reason);
  bool find_opening();
  void file_ends(bool inside);

  BufferedFile& file_;
  uint64_t max_value_bytes_;
  std::string put_back_;
  size_t put_back_at_ = 0;
  uint64_t offset_ = 0;  // of the next byte
  Place place_ = Place::kBefore;
  ValueScan scan_;
  int64_t num_items_ = 0;
  std::string cut_off_;
};

}  // namespace dflash::io
