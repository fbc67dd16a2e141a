// Every form a drafter comes in, behind one loader and one writer. What is inside is one canonical
// DraftSpec; each form's conventions are converted at its edge (MODELS.md 4.3 to 4.7).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/speculators.h"
#include "io/gguf_write.h"

namespace dflash::draft {

enum class Format { kZlab, kSpeculators, kDeepSpec, kGguf };

std::string_view format_name(Format format);  // "zlab", "speculators", "deepspec", "gguf"
Format parse_format(std::string_view name);   // Error lists the known ones

/// By content: a GGUF file, or the config.json of a folder. Error: neither.
Format recognise(const std::filesystem::path& path);

/// Any form, ready to decode (packed). Errors name what is missing or not implemented.
std::shared_ptr<Drafter> load_drafter(const std::filesystem::path& path, nn::Compute compute);
/// The same without the weights.
DraftSpec read_drafter_spec(const std::filesystem::path& path);

/// What a form may need of the target; empty parts are asked for by name.
struct TargetParts {
  at::Tensor embed_VD, head_VD;          // full tables, f32 or bf16
  std::vector<io::GgufEntry> tokenizer;  // tokenizer.* keys
  Verifier verifier;                     // how speculators finds the target
  int64_t max_positions = 0;
};

/// Why `format`'s programs would run another model than this one; empty: they run this one.
std::vector<std::string> format_limits(const Drafter& drafter, Format format);

/// Writes a folder, or a file for GGUF. Errors: format_limits, parts that are needed and missing.
void export_drafter(const Drafter& drafter, const std::filesystem::path& path, Format format,
                    nn::Compute storage, const TargetParts& target);

/// Drops own tables that equal the target's value for value, so that these serve; true if any were.
bool drop_borrowed_tables(Drafter& drafter, const at::Tensor& embed_VD, const at::Tensor& head_VD);

}  // namespace dflash::draft
