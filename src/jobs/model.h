// The one loader: path -> {target, tokenizer, template}. Serves every verb.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "nn/compute.h"
#include "target/target.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace dflash::jobs {

struct Model {
  std::shared_ptr<const target::Target> target;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  text::ChatTemplate chat;
};

/// A Hugging Face folder or a .gguf file. Errors name what is missing or not supported.
Model load_model(const std::filesystem::path& path, nn::Compute compute,
                 const text::ChatOptions& chat = {});

/// Only the text side: no weights are read.
std::shared_ptr<const text::Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// The tokenizer's template; an unknown one is refused only where something is to be rendered.
/// Error: a thinking mode is asked for that it does not know.
text::ChatTemplate load_chat(const text::Tokenizer& tokenizer,
                             const text::ChatOptions& options = {});

/// Folder with the default target and the HumanEval prompts: $DFLASH_ASSETS, or assets/ in the
/// current folder, or assets/ of the tree that the program was built in.
std::filesystem::path assets_folder();
std::filesystem::path default_target();
/// Folder with the bundled prompts (train.jsonl, heldout.jsonl): $DFLASH_PROMPTS, or prompts/ found
/// in the same places.
std::filesystem::path prompts_folder();

/// Folder of the drafter that comes with the program, for the default target: $DFLASH_DRAFTER (set
/// to nothing: none), or recipes/smollm2/drafter found in the same places. None when it is not
/// there. Error: the variable names something else.
std::optional<std::filesystem::path> bundled_drafter();
/// The same, when `target` (empty: the default) is what it was trained for.
std::optional<std::filesystem::path> bundled_drafter_for(const std::filesystem::path& target);

/// "llama, 30 blocks, hidden 576, Q4_1 widened to bf16, kernels amx-bf16": for run headers.
std::string describe(const target::Target& target);

}  // namespace dflash::jobs
