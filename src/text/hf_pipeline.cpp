#include "text/hf_pipeline.h"

#include <cctype>

#include "base/error.h"

namespace dflash::text {
namespace {

constexpr int kMaxDepth = 8;  // Sequences inside Sequences

/// Reads `node[key]`'s components in order, Sequences opened up.
template <typename Visit>
void visit_components(const Json& node, const char* list, const TokenizerSpec& spec, int depth,
                      const Visit& visit) {
  if (node.is_null()) return;
  if (depth > kMaxDepth) fail("tokenizer: {}: '{}' nested too deeply", spec.source, list);
  const auto type = node.at("type").get<std::string>();
  if (type != "Sequence") return visit(type, node);
  for (const Json& part : node.at(list)) visit_components(part, list, spec, depth + 1, visit);
}

[[noreturn]] void unsupported(const TokenizerSpec& spec, const char* stage, const std::string& what,
                              const char* known) {
  fail("tokenizer: {}: {}: '{}' is not supported\n  hint: known are {}", spec.source, stage, what,
       known);
}

/// A literal string as a pattern.
std::string escape_literal(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

SplitStep read_split(const Json& node, const TokenizerSpec& spec) {
  SplitStep step;
  const Json& pattern = node.at("pattern");
  if (pattern.contains("Regex")) {
    step.pattern = pattern.at("Regex").get<std::string>();
  } else if (pattern.contains("String")) {
    step.pattern = escape_literal(pattern.at("String").get<std::string>());
  } else {
    unsupported(spec, "Split pattern", pattern.dump(), "Regex, String");
  }
  const auto behavior = node.at("behavior").get<std::string>();
  if (behavior != "Isolated" && behavior != "Removed") {
    unsupported(spec, "Split behavior", behavior, "Isolated, Removed");
  }
  step.removed = behavior == "Removed";
  step.invert = value_or(node, "invert", false);
  return step;
}

void read_pre_tokenizer(const std::string& type, const Json& node, TokenizerSpec& spec) {
  if (spec.byte_level) unsupported(spec, "pre_tokenizer after ByteLevel", type, "none");
  if (type == "Split") {
    spec.splits.push_back(read_split(node, spec));
  } else if (type == "Digits") {
    const bool individual = value_or(node, "individual_digits", false);
    spec.splits.push_back({individual ? R"(\p{N})" : R"(\p{N}+)"});
  } else if (type == "ByteLevel") {
    if (value_or(node, "add_prefix_space", true)) {
      unsupported(spec, "ByteLevel", "add_prefix_space: true", "false");
    }
    if (value_or(node, "use_regex", true)) spec.splits.push_back({kGpt2Pattern});
    spec.byte_level = true;
  } else {
    unsupported(spec, "pre_tokenizer", type, "Split, Digits, ByteLevel, Sequence");
  }
}

}  // namespace

void read_pipeline(const Json& tokenizer, TokenizerSpec& spec) {
  visit_components(tokenizer.value("normalizer", Json()), "normalizers", spec, 0,
                   [&](const std::string& type, const Json&) {
                     if (type != "NFC") unsupported(spec, "normalizer", type, "NFC, Sequence");
                     spec.nfc = true;
                   });
  visit_components(
      tokenizer.value("pre_tokenizer", Json()), "pretokenizers", spec, 0,
      [&](const std::string& type, const Json& node) { read_pre_tokenizer(type, node, spec); });
  visit_components(tokenizer.value("decoder", Json()), "decoders", spec, 0,
                   [&](const std::string& type, const Json&) {
                     if (type != "ByteLevel") {
                       unsupported(spec, "decoder", type, "ByteLevel, Sequence");
                     }
                   });
}

}  // namespace dflash::text
