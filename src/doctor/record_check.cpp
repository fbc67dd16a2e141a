#include "doctor/record_check.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "draft/zlab.h"

namespace dflash::doctor {
namespace {

namespace fs = std::filesystem;

/// Paper, section "loss": 7 for blocks of 16, 5 for 10, 4 for 8.
double paper_gamma(int64_t block_size) {
  if (block_size >= 16) return 7;
  return block_size >= 10 ? 5 : 4;
}

void check_loss(const Json& loss, int64_t block_size, Findings& findings) {
  std::string terms;
  for (const Json& term : loss.at("terms")) {
    const double weight = term.at("weight").get<double>();
    terms += fmt::format("{}{}{}", terms.empty() ? "" : " + ",
                         weight == 1 ? "" : fmt::format("{:g} x ", weight),
                         term.at("loss").get<std::string>());
  }
  findings.ok("loss", terms);
  const std::string labels = loss.at("labels").get<std::string>();
  findings.ok("labels", labels == "argmax" ? "the target's argmax" : "the data's token");
  if (loss.at("slot_weights") != "decay") {
    findings.ok("slot weights", loss.at("slot_weights").get<std::string>());
    return;
  }
  const double gamma = loss.at("gamma").get<double>();
  const std::string text = fmt::format("decay with gamma {:g}", gamma);
  if (gamma == 4.0 || gamma == paper_gamma(block_size)) {
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
  if (record.value("format", "") != "dflash-run") {
    fail("run.json: expected format \"dflash-run\", got \"{}\"", record.value("format", ""));
  }
  Findings findings;
  const Json& options = record.at("header").at("options");
  check_loss(options.at("loss"), spec.rule.block_size, findings);
  check_noise(options.at("noise"), findings);
  const Json& config = record.at("config");
  if (config.contains("drafter") && config["drafter"].is_object()) {
    check_convention(config["drafter"], spec, findings);
  }
  return findings;
}

}  // namespace dflash::doctor
