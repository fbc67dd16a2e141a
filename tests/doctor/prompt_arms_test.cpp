// The forms in which a question can be put to the default target (PREP: system prompt, template).
#include "doctor/prompt_arms.h"

#include <gtest/gtest.h>

#include <map>

#include "jobs/model.h"

namespace dflash::doctor {
namespace {

std::map<std::string, std::string> texts_of(const std::vector<text::Message>& question) {
  const auto tokenizer = jobs::load_tokenizer(jobs::default_target());
  const auto chat = text::ChatTemplate::for_tokenizer(*tokenizer);
  const std::vector<std::vector<int64_t>> declared = {
      text::encode_prompt(*tokenizer, chat, {question})};
  std::map<std::string, std::string> texts;
  for (const PromptArm& arm : prompt_arms(*tokenizer, chat, {{question}}, declared)) {
    EXPECT_NE(arm.prompts, declared) << arm.name;
    texts[arm.name] = tokenizer->decode(arm.prompts.at(0));
  }
  return texts;
}

TEST(PromptArms, WhatTheDefaultTargetCanBeTold) {
  const auto texts = texts_of({{"user", "Hi"}});
  EXPECT_EQ(texts.at("template-none"), "Hi");
  EXPECT_EQ(texts.at("template-chatml"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(texts.at("system-helpful"),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(texts.at("system-empty").starts_with("<|im_start|>system\n<|im_end|>\n"));
  EXPECT_FALSE(texts.contains("system-none")) << "the question has none to leave out";
  EXPECT_FALSE(texts.contains("thinking-on")) << "the template knows no thinking";
}

TEST(PromptArms, AnOwnSystemPromptCanBeLeftOut) {
  const auto texts = texts_of({{"system", "Be brief."}, {"user", "Hi"}});
  ASSERT_TRUE(texts.contains("system-none"));
  EXPECT_EQ(texts.at("system-none").find("Be brief."), std::string::npos);
  EXPECT_EQ(texts.at("template-none"), "Be brief.\n\nHi");
}

}  // namespace
}  // namespace dflash::doctor
