#include "doctor/record_check.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "draft/zlab.h"
#include "train/losses.h"

namespace dflash::doctor {
namespace {

namespace fs = std::filesystem;

/// Paper, section "loss": 7 for blocks of 16, 5 for 10, 4 for 8.
double paper_gamma(int64_t block_size) {
  if (block_size >= 16) return 7;
  return block_size >= 10 ? 5 : 4;
}

/// What the options' own reader makes of a text of the record; else what it says against it.
template <typename Read>
bool known(const char* subject, const Read& read, Findings& findings) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    findings.wrong(subject, error.what());
    return false;
  }
}

void check_terms(const Json& loss, Findings& findings) {
  std::string terms;
  for (const Json& term : loss.at("terms")) {
    const double weight = term.at("weight").get<double>();
    const std::string name = term.at("loss").get<std::string>();
    if (!known(
            "loss", [&] { train::parse_loss(name); }, findings))
      return;
    if (!(weight > 0)) {
      findings.wrong("loss", fmt::format("{}: expected a weight above 0, got {:g}", name, weight));
      return;
    }
    terms += fmt::format("{}{}{}", terms.empty() ? "" : " + ",
                         weight == 1 ? "" : fmt::format("{:g} x ", weight), name);
  }
  terms.empty() ? findings.wrong("loss", "expected at least one term, got none")
                : findings.ok("loss", terms);
}

void check_loss(const Json& loss, int64_t block_size, Findings& findings) {
  check_terms(loss, findings);
  const std::string labels = loss.at("labels").get<std::string>();
  if (labels == "argmax" || labels == "token") {
    findings.ok("labels", labels == "argmax" ? "the target's argmax" : "the data's token");
  } else {
    findings.wrong("labels", fmt::format("expected argmax or token, got {}", labels));
  }
  const std::string weights = loss.at("slot_weights").get<std::string>();
  if (!known(
          "slot weights", [&] { train::parse_slot_weights(weights); }, findings))
    return;
  if (weights != "decay") {
    findings.ok("slot weights", weights);
    return;
  }
  const double gamma = loss.at("gamma").get<double>();
  const std::string text = fmt::format("decay with gamma {:g}", gamma);
  if (!(gamma >= 0)) {
    findings.wrong("slot weights", text + ": expected 0 (none) or more");
  } else if (gamma == 4.0 || gamma == paper_gamma(block_size)) {
    findings.ok("slot weights", text);
  } else {
    findings.note("slot weights",
                  fmt::format("{}; the paper has {:g} for blocks of {}, the default is 4", text,
                              paper_gamma(block_size), block_size));
  }
}

void check_noise(const Json& noise, Findings& findings) {
  const std::string kind = noise.at("kind").get<std::string>();
  if (kind == "none") {
    findings.ok("feature noise", "none");
    return;
  }
  findings.note("feature noise", fmt::format("{} of {:g}{}; labels and teacher never see it", kind,
                                             noise.at("scale").get<double>(),
                                             noise.at("anneal").get<bool>() ? ", annealed" : ""));
}

/// The convention that the run was begun with against the one the drafter declares now.
void check_convention(const Json& drafter, const draft::DraftSpec& spec, Findings& findings) {
  const draft::DraftSpec begun = draft::parse_zlab_config(drafter, "run.json: config.drafter");
  const auto differ = [&](const char* what, const auto& was, const auto& is) {
    if (was == is) return;
    findings.wrong(what,
                   fmt::format("the run was begun with {}, the drafter declares {}", was, is));
  };
  differ("block size", begun.rule.block_size, spec.rule.block_size);
  differ("mask id", begun.rule.mask_id, spec.rule.mask_id);
  differ("slot shift", begun.rule.slot_shift, spec.rule.slot_shift);
  differ("taps", fmt::format("{}", fmt::join(begun.taps, ",")),
         fmt::format("{}", fmt::join(spec.taps, ",")));
  differ("rotary base", begun.rope.theta, spec.rope.theta);
  for (size_t l = 0; l < std::min(begun.rule.layers.size(), spec.rule.layers.size()); ++l) {
    differ("layer rule", block::describe(begun.rule.layers[l]),
           block::describe(spec.rule.layers[l]));
  }
}

void check_target(const Json& config, const draft::DraftSpec& spec, Findings& findings) {
  const std::string begun = config.value("target_fingerprint", "");
  if (begun.empty() || spec.target_fingerprint.empty() || begun == spec.target_fingerprint) return;
  findings.wrong("target", fmt::format("the run was begun on {}, the drafter declares {}", begun,
                                       spec.target_fingerprint));
}

}  // namespace

std::optional<fs::path> find_record(const fs::path& drafter) {
  std::error_code ignored;
  fs::path folder = fs::weakly_canonical(drafter, ignored);
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    if (fs::exists(folder / "run.json", ignored)) return folder / "run.json";
  }
  return std::nullopt;
}

Findings check_record(const Json& record, const draft::DraftSpec& spec) {
  if (!record.is_object() || record.value("format", Json()) != "dflash-run" ||
      record.value("version", Json()) != 1) {
    fail("run.json: expected format \"dflash-run\", version 1, got {}, {}",
         record.is_object() ? record.value("format", Json()).dump() : "no object",
         record.is_object() ? record.value("version", Json()).dump() : "none");
  }
  Findings findings;
  try {
    const Json& options = record.at("header").at("options");
    check_loss(options.at("loss"), spec.rule.block_size, findings);
    check_noise(options.at("noise"), findings);
    const Json& config = record.at("config");
    if (config.contains("drafter") && config["drafter"].is_object()) {
      check_convention(config["drafter"], spec, findings);
    }
    check_target(config, spec, findings);
  } catch (const Json::exception& error) {
    fail(
        "run.json: damaged, or of another program: {}\n  hint: move it away to check the drafter "
        "without it",
        error.what());
  }
  return findings;
}

}  // namespace dflash::doctor
