#include "data/contamination.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/rng.h"
#include "data/rows.h"
#include "io/records.h"

namespace dflash::data {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kBase = 0x9e3779b97f4a7c15;  // odd: multiplication by it loses nothing
constexpr uint64_t kWordSeed = 0xcbf29ce484222325;
constexpr uint32_t kFirstUnspaced = 0x2E80;  // CJK radicals; ideographs, kana and hangul follow

bool is_word_byte(unsigned char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') || byte >= 0x80;
}

unsigned char lower(unsigned char byte) {
  return byte >= 'A' && byte <= 'Z' ? static_cast<unsigned char>(byte + 32) : byte;
}

/// Whether the UTF-8 sequence that starts with these bytes is of a script without spaces.
bool is_unspaced(std::string_view rest) {
  const auto first = static_cast<unsigned char>(rest[0]);
  if (first >= 0xF0) return true;  // outside the basic plane
  if (first < 0xE0 || rest.size() < 3) return false;
  const uint32_t code = (first & 0x0Fu) << 12 | (static_cast<unsigned char>(rest[1]) & 0x3Fu) << 6 |
                        (static_cast<unsigned char>(rest[2]) & 0x3Fu);
  return code >= kFirstUnspaced;
}

size_t sequence_length(unsigned char first) {
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
}

/// Calls each(hash) for every run of `length` words.
template <typename Each>
void run_hashes(const std::vector<uint64_t>& words, int64_t length, Each each) {
  const auto size = static_cast<int64_t>(words.size());
  uint64_t power = 1;  // kBase^(length-1), weight of the word that leaves
  for (int64_t i = 1; i < length; ++i) power *= kBase;
  uint64_t hash = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (i >= length) hash -= words[i - length] * power;
    hash = hash * kBase + words[i];
    if (i + 1 >= length) each(mix({hash}));
  }
}

void add_strings(HeldOut& held_out, const OrderedJson& value) {
  if (value.is_string()) held_out.add_text(value.get_ref<const std::string&>());
  if (value.is_structured()) {
    for (const OrderedJson& part : value) add_strings(held_out, part);
  }
}

void add_row(HeldOut& held_out, const OrderedJson& record) {
  add_strings(held_out, record);
  const ParsedRow parsed = parse_row(record);
  if (const Row* row = std::get_if<Row>(&parsed)) {
    for (const text::Message& message : row->conversation.messages) {
      if (message.role == "user") held_out.add_prompt(message.content);
    }
  }
}

}  // namespace

std::vector<uint64_t> word_hashes(std::string_view text) {
  std::vector<uint64_t> words;
  uint64_t word = 0;  // 0: none open
  const auto close = [&] {
    if (word != 0) words.push_back(mix({word}));
    word = 0;
  };
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (!is_word_byte(byte)) {
      close();
      ++i;
      continue;
    }
    const bool alone = byte >= 0x80 && is_unspaced(text.substr(i));
    const size_t length = std::min(sequence_length(byte), text.size() - i);
    if (alone) close();
    if (word == 0) word = kWordSeed;
    for (size_t j = 0; j < length; ++j) {
      word = (word ^ lower(static_cast<unsigned char>(text[i + j]))) * 0x100000001b3;  // FNV-1a
    }
    if (alone) close();
    i += length;
  }
  close();
  return words;
}

void HeldOut::add_runs(const std::vector<uint64_t>& words, int64_t length) {
  if (static_cast<int64_t>(words.size()) < length) return;
  auto& runs = runs_[length];
  run_hashes(words, length, [&](uint64_t hash) { runs.insert(hash); });
}

void HeldOut::add_text(std::string_view text) {
  add_runs(word_hashes(text), kRunWords);
}

void HeldOut::add_prompt(std::string_view prompt) {
  const std::vector<uint64_t> words = word_hashes(prompt);
  const auto size = static_cast<int64_t>(words.size());
  if (size >= kMinPromptWords) add_runs(words, std::min(size, kRunWords));
}

void HeldOut::add_file(const fs::path& path) {
  const bool records =
      path.extension() == ".jsonl" || (path.extension() == ".json" && io::is_record_array(path));
  if (!records) return add_text(read_text(path));
  io::read_records(path, {}, [&](const auto&, const auto& record) { add_row(*this, record); });
}

bool HeldOut::shares_run_with(std::string_view text) const {
  if (empty()) return false;
  const std::vector<uint64_t> words = word_hashes(text);
  for (const auto& [length, runs] : runs_) {
    bool found = false;
    run_hashes(words, length, [&](uint64_t hash) { found = found || runs.contains(hash); });
    if (found) return true;
  }
  return false;
}

}  // namespace dflash::data
