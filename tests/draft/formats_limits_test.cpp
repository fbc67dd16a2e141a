// What a form cannot say is refused at export, what this program does not compute at load, both by
// name; damaged files give errors and nothing else.
#include "base/files.h"
#include "draft/formats_fixtures.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using testing::TempFolder;

TEST(Formats, WhatTheyCannotSayIsRefusedByName) {
  const auto error = [](Format format, auto change) {
    DraftSpec spec = plain_spec();
    change(spec);
    return export_error(*small_drafter(spec, nn::Compute::kF32), format);
  };
  const auto expect = [&](Format format, const char* part, auto change) {
    EXPECT_NE(error(format, change).find(part), std::string::npos) << error(format, change);
  };
  const auto window = [](Bound bound, InBlock in_block) {
    return [=](DraftSpec& spec) { spec.rule.layers[0] = {6, bound, in_block}; };
  };
  expect(Format::kSpeculators, "counted from the query", window(Bound::kQuery, InBlock::kCausal));
  expect(Format::kGguf, "counted from the anchor", window(Bound::kAnchor, InBlock::kBidirectional));
  expect(Format::kGguf, "one switch", window(Bound::kQuery, InBlock::kCausal));
  expect(Format::kZlab, "cannot say", window(Bound::kAnchor, InBlock::kCausal));
  expect(Format::kDeepSpec, "windows", window(Bound::kQuery, InBlock::kCausal));
  expect(Format::kGguf, "smaller than a block", [](DraftSpec& spec) {
    for (auto& rule : spec.rule.layers) rule = {3, Bound::kQuery, InBlock::kBidirectional};
  });
  expect(Format::kGguf, "anchor-first", [](DraftSpec& spec) { spec.rule.slot_shift = 1; });
  expect(Format::kZlab, "anchor-first", [](DraftSpec& spec) { spec.rule.slot_shift = 1; });
  expect(Format::kDeepSpec, "their", [](DraftSpec&) {});
  expect(Format::kGguf, "biases", [](DraftSpec& spec) { spec.attention_bias = true; });
  for (const Format format :
       {Format::kZlab, Format::kSpeculators, Format::kDeepSpec, Format::kGguf}) {
    expect(format, "hidden size", [](DraftSpec& spec) { spec.target_hidden_size = 20; });
  }
  for (const Format format : {Format::kSpeculators, Format::kGguf}) {
    expect(format, "--target", [](DraftSpec& spec) { spec.draft_ids = {3, 5}; });
  }
}

TEST(Formats, MutatedFilesGiveErrorsOnly) {
  const std::string whole = testing::read_file(kGolden / "llama_cpp.gguf");
  TempFolder folder;
  int64_t refused = 0;
  for (uint64_t i = 0; i < 150; ++i) {
    std::string bytes = whole;
    if (i % 3 == 0) {
      bytes.resize(uniform_below(bytes.size(), {31, i}));
    } else {  // the keys of the architecture come first, the tensors' list after the vocabulary
      bytes[uniform_below(i % 3 == 1 ? 1500 : 20000, {32, i})] ^=
          static_cast<char>(1 + uniform_below(255, {33, i}));
    }
    testing::write_file(folder / "x.gguf", bytes);
    try {
      load_drafter(folder / "x.gguf", nn::Compute::kF32);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 60);
}

TEST(Formats, ForeignFilesAreRefusedByName) {
  TempFolder folder;
  const auto refused = [&](const fs::path& path) {
    return testing::error_of<Error>([&] { load_drafter(path, nn::Compute::kF32); });
  };
  testing::write_file(folder / "x.txt", "hello");
  EXPECT_NE(refused(folder / "x.txt").find("not a drafter"), std::string::npos);
  const auto with_key = [&](const io::GgufEntry& entry) {
    auto entries = io::copy_entries(*io::GgufFile::open(kGolden / "llama_cpp.gguf"), "");
    std::erase_if(entries, [&](const auto& e) { return e.key == entry.key; });
    entries.push_back(entry);
    const auto file = io::GgufFile::open(kGolden / "llama_cpp.gguf");
    io::write_gguf(folder / "x.gguf", entries, file->tensors());
    return refused(folder / "x.gguf");
  };
  EXPECT_NE(with_key({"dflash.selector_top_k", uint32_t{16}}).find("DFlash2"), std::string::npos);
  EXPECT_NE(with_key({"dflash.logit_scale", 0.5F}).find("multiplier"), std::string::npos);
  EXPECT_NE(with_key({"dflash.new_thing", 1.0F}).find("new_thing"), std::string::npos);
  EXPECT_NE(with_key({"dflash.rope.dimension_count", uint32_t{4}}).find("partial"),
            std::string::npos);
  EXPECT_NE(with_key({"general.architecture", std::string("dflash-draft")}).find("fork"),
            std::string::npos);
  EXPECT_NE(with_key({"dflash.target_layers", std::vector<int32_t>{-1, 2}}).find("-1"),
            std::string::npos);

  const auto with_config = [&](const std::string& key, const Json& value) {
    fs::remove_all(folder / "s");
    fs::copy(kGolden / "speculators_full", folder / "s");
    Json config = read_json(folder / "s/config.json");
    config[key] = value;
    write_json(folder / "s/config.json", config);
    return refused(folder / "s");
  };
  EXPECT_NE(with_config("speculators_model_type", "dspark").find("DSpark"), std::string::npos);
  EXPECT_NE(with_config("speculators_model_type", "eagle3").find("eagle3"), std::string::npos);
  EXPECT_NE(with_config("aux_hidden_state_layer_ids", nullptr).find("cannot be guessed"),
            std::string::npos);
  EXPECT_NE(with_config("draft_vocab_size", 32000).find("d2t"), std::string::npos);
}

}  // namespace
}  // namespace dflash::draft
