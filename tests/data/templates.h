// Chat templates for the word tokenizer: one that shows all there is, one that shows texts alone.
#pragma once

#include <string>

#include "base/files.h"
#include "support/paths.h"

namespace dflash {

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// Keeps the reasoning of the last turn only and shows tools, as Qwen3's does; with our markers.
inline std::string agent_template() {
  const Json families = read_json(tree::root() / "tests/golden/jinja/families.json");
  const std::string text = families.at("families").at("strip_old_reasoning").at("template");
  return replaced(replaced(text, "</s>", "<|im_end|>"), "<s>", "<|im_start|>");
}

inline std::string smollm2_template() {
  return read_json(tree::root() / "tests/golden/text/chat.json").at("smollm2");
}

}  // namespace dflash
