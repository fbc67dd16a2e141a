// Shared by the tests of the drafter's forms: where the files of other programs are, a drafter that
// every form can nearly hold, and what an export of it says.
#pragma once

#include "base/error.h"
#include "draft/fixtures.h"
#include "draft/formats.h"
#include "support/temp_folder.h"

namespace dflash::draft {

namespace fs = std::filesystem;

inline const fs::path kGolden = testing::source_path("tests/golden/formats");

inline std::vector<io::GgufEntry> vocabulary(int64_t size) {
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < size; ++i) tokens.push_back(fmt::format("t{}", i));
  return {{"tokenizer.ggml.model", std::string("gpt2")}, {"tokenizer.ggml.tokens", tokens}};
}

inline TargetParts target_parts(const at::Tensor& head_VD,
                                std::vector<io::GgufEntry> tokenizer = {}, Verifier verifier = {}) {
  TargetParts parts;
  parts.head_VD = head_VD;
  parts.tokenizer = std::move(tokenizer);
  parts.verifier = std::move(verifier);
  return parts;
}

inline std::string export_error(const Drafter& drafter, Format format) {
  testing::TempFolder folder;
  return testing::error_of<Error>([&] {
    export_drafter(drafter, folder / "out", format, nn::Compute::kF32,
                   target_parts({}, vocabulary(drafter.spec().vocab_size)));
  });
}

inline DraftSpec plain_spec() {
  DraftSpec spec = small_spec({{}, {}});
  spec.target_hidden_size = spec.hidden_size;
  spec.target_fingerprint = "t-1";
  spec.tokenizer_fingerprint = "k-2";
  spec.max_positions = 512;
  return spec;
}

}  // namespace dflash::draft
