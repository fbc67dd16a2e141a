// What the parts of the verb doctor share. Internal to cli.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "draft/drafter.h"

namespace dflash::cli {

struct DoctorOptions {
  TargetOptions target;
  std::string drafter, prompts = "heldout", trace, record, dataset;
  std::vector<std::string> features;
  int64_t limit = 0, max_new = 96, anchors = 64, anchor = -1, confirm = 2;
  bool explain = false, json = false;

  void add(CLI::App& app);
  /// The report: JSON on stdout when asked for, else the text.
  void print(const Json& json_report, const std::string& text) const;
};

// Exit codes: 0 as it should be, 1 something is wrong.

/// train = serve, stage by stage.
int prove_drafter(const jobs::Model& model, const draft::Drafter& drafter,
                  const DoctorOptions& options);
/// Every single deviation scored.
int explain_drafter(const jobs::Model& model, const draft::Drafter& drafter,
                    const DoctorOptions& options);
int record_trace(const jobs::Model& model, const draft::Drafter& drafter,
                 const DoctorOptions& options);
int compare_with_trace(const jobs::Model& model, const draft::Drafter& drafter,
                       const DoctorOptions& options);

}  // namespace dflash::cli
