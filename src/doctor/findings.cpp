#include "doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace dflash::doctor {
namespace {

const char* word(Level level) {
  if (level == Level::kOk) return "ok";
  return level == Level::kNote ? "note" : "WRONG";
}

}  // namespace

void Findings::ok(std::string subject, std::string text) {
  all_.push_back({Level::kOk, std::move(subject), std::move(text)});
}

void Findings::note(std::string subject, std::string text) {
  all_.push_back({Level::kNote, std::move(subject), std::move(text)});
}

void Findings::wrong(std::string subject, std::string text) {
  all_.push_back({Level::kWrong, std::move(subject), std::move(text)});
}

void Findings::append(const Findings& other) {
  all_.insert(all_.end(), other.all_.begin(), other.all_.end());
}

bool Findings::any_wrong() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Finding& finding) { return finding.level == Level::kWrong; });
}

std::string Findings::to_text() const {
  std::string text;
  for (const Finding& finding : all_) {
    text += fmt::format("{:<6} {:<22} {}\n", word(finding.level), finding.subject, finding.text);
  }
  return text;
}

Json Findings::to_json() const {
  Json json = Json::array();
  for (const Finding& finding : all_) {
    json.push_back(
        {{"level", word(finding.level)}, {"subject", finding.subject}, {"text", finding.text}});
  }
  return json;
}

}  // namespace dflash::doctor
