// Keeps held-out text out of training data: a document that shares a run of 13 words with it is
// reported. Words are lower-case runs of letters and digits; everything else separates; a character
// of a script without spaces (U+2E80 and up) is a word by itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace dflash::data {

/// Hashes of the words of a text, in order.
std::vector<uint64_t> word_hashes(std::string_view text);

class HeldOut {
 public:
  static constexpr int64_t kRunWords = 13;
  static constexpr int64_t kMinPromptWords = 5;

  /// Every 13-word run of the text.
  void add_text(std::string_view text);
  /// A held-out prompt: like add_text, and one of 5 to 12 words counts when met whole.
  void add_prompt(std::string_view prompt);
  /// Each line's prompts, and every other string of the line as text (HumanEval: solutions and
  /// tests too). A file that is not JSON lines is one text. Error: missing file, broken line.
  void add_file(const std::filesystem::path& path);

  bool empty() const { return runs_.empty(); }
  bool shares_run_with(std::string_view text) const;

 private:
  void add_runs(const std::vector<uint64_t>& words, int64_t length);

  std::map<int64_t, std::unordered_set<uint64_t>> runs_;  // run length in words -> hashes
};

}  // namespace dflash::data
