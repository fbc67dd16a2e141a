#include "doctor/dataset_check.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "block/blocks.h"
#include "data/loops.h"

namespace dflash::doctor {
namespace {

std::string share_text(int64_t part, int64_t whole) {
  return fmt::format(
      "{} of {} ({:.1f} %)", part, whole,
      100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole)));
}

class Check {
 public:
  Check(const data::Dataset& dataset, const text::Tokenizer& tokenizer)
      : dataset_(dataset), tokenizer_(tokenizer), documents_(dataset.num_documents()) {}

  Findings run() {
    check_supervision();
    check_masks();
    check_begins();
    check_ends();
    check_loops();
    check_doubles();
    return std::move(findings_);
  }

 private:
  bool is_stop(int64_t id) const {
    const auto& stops = tokenizer_.stop_ids();
    return std::find(stops.begin(), stops.end(), id) != stops.end();
  }

  void check_supervision() {
    const int64_t supervised = dataset_.num_supervised();
    const std::string text = share_text(supervised, dataset_.num_tokens());
    const double share = static_cast<double>(supervised) /
                         static_cast<double>(std::max<int64_t>(1, dataset_.num_tokens()));
    if (supervised == 0) {
      findings_.wrong("supervised tokens", text + ": nothing to train on");
    } else if (share > 0.98) {
      findings_.wrong("supervised tokens", text +
                                               ": prompts are supervised too; prepare again from "
                                               "files that say who wrote what");
    } else {
      findings_.ok("supervised tokens", text);
    }
    int64_t without = 0;
    for (int64_t d = 0; d < documents_; ++d) {
      const auto ids = dataset_.document_ids(d);
      const std::vector<int64_t> doc(ids.size(), 0);
      without += block::legal_anchors({ids, dataset_.document_mask(d), doc}).empty() ? 1 : 0;
    }
    const std::string anchors = share_text(without, documents_) + " documents without an anchor";
    2 * without > documents_ ? findings_.wrong("anchors", anchors)
                             : findings_.ok("anchors", anchors);
  }

  /// Special tokens inside what the target is said to have written. A mask that covers the template
  /// does so in most documents; now and then a target says such a token itself.
  void check_masks() {
    std::map<int64_t, int64_t> marks;
    int64_t with = 0;
    for (int64_t d = 0; d < documents_; ++d) {
      const auto ids = dataset_.document_ids(d);
      const auto mask = dataset_.document_mask(d);
      bool any = false;
      for (size_t t = 0; t < ids.size(); ++t) {
        if (!mask[t] || !tokenizer_.is_special(ids[t]) || is_stop(ids[t])) continue;
        ++marks[ids[t]];
        any = true;
      }
      with += any ? 1 : 0;
    }
    if (marks.empty()) {
      findings_.ok("masks", "no template token is supervised");
      return;
    }
    std::string text = "supervised special tokens:";
    for (const auto& [id, count] : marks) {
      text += fmt::format(" {} ({} times)", tokenizer_.token_bytes(id), count);
    }
    text += "; in " + share_text(with, documents_) + " documents";
    if (10 * with > documents_) {
      findings_.wrong("masks", text + ": the mask covers more than the answers");
    } else {
      findings_.note("masks", text + ": the target's own words, or a mask that covers too much");
    }
  }

  void check_begins() {
    const auto bos = tokenizer_.bos_id();
    int64_t doubled = 0, with = 0;
    for (int64_t d = 0; d < documents_; ++d) {
      const auto ids = dataset_.document_ids(d);
      if (bos && ids[0] == *bos) ++with;
      if (ids.size() > 1 && ids[0] == ids[1] && tokenizer_.is_special(ids[0])) ++doubled;
    }
    if (doubled > 0) {
      findings_.wrong("begin tokens", share_text(doubled, documents_) +
                                          " documents begin with the same special token twice");
    } else if (with > 0 && with < documents_) {
      findings_.wrong("begin tokens", share_text(documents_ - with, documents_) +
                                          " documents lack the begin token that the others have");
    } else {
      findings_.ok("begin tokens", with > 0 ? "once in every document" : "none, in no document");
    }
  }

  void check_ends() {
    int64_t ended = 0;
    for (int64_t d = 0; d < documents_; ++d) {
      const auto ids = dataset_.document_ids(d);
      const auto mask = dataset_.document_mask(d);
      for (size_t t = 0; t < ids.size(); ++t) {
        if (!mask[t] || !is_stop(ids[t])) continue;
        ++ended;
        break;
      }
    }
    const std::string text =
        share_text(ended, documents_) + " documents have a supervised end token";
    if (ended == 0) {
      findings_.wrong("end tokens", text + ": the drafter never learns where answers end");
    } else if (2 * ended < documents_) {
      findings_.note("end tokens", text + ": most answers were cut by their budget");
    } else {
      findings_.ok("end tokens", text);
    }
  }

  void check_loops() {
    int64_t looping = 0;
    for (int64_t d = 0; d < documents_; ++d) {
      const auto ids = dataset_.document_ids(d);
      const auto mask = dataset_.document_mask(d);
      std::vector<int64_t> answer;
      for (size_t t = 0; t < ids.size(); ++t) {
        if (mask[t] && !is_stop(ids[t])) answer.push_back(ids[t]);
      }
      looping += data::find_loop(answer) ? 1 : 0;
    }
    const std::string text = share_text(looping, documents_) + " answers loop";
    if (20 * looping > documents_) {
      findings_.wrong("loops", text + ": prepare drops them unless told otherwise");
    } else {
      findings_.ok("loops", text);
    }
  }

  void check_doubles() {
    std::unordered_set<uint64_t> seen;
    int64_t doubles = 0;
    for (int64_t d = 0; d < documents_; ++d) {
      doubles +=
          seen.insert(data::content_hash(dataset_.document_ids(d), dataset_.document_mask(d)))
                  .second
              ? 0
              : 1;
    }
    const std::string text = share_text(doubles, documents_) + " documents stand there twice";
    doubles > 0 ? findings_.note("doubles", text) : findings_.ok("doubles", text);
  }

  const data::Dataset& dataset_;
  const text::Tokenizer& tokenizer_;
  int64_t documents_;
  Findings findings_;
};

struct Owned {
  int64_t own = 0, supervised = 0;
};

/// Supervised tokens of a document that are the target's argmax after what stands before them.
Owned count_own(const target::Target& target, std::span<const int64_t> ids,
                std::span<const uint8_t> mask) {
  const auto rows =
      std::min<int64_t>(static_cast<int64_t>(ids.size()), target.config().max_positions);
  const auto state = target.new_state();
  const target::Segment segment{state.get(), 0, rows};
  const at::Tensor ids_R =
      at::tensor(std::vector<int64_t>(ids.begin(), ids.begin() + rows), at::kLong);
  const auto hidden = target.forward({ids_R, at::arange(rows, at::kLong), {&segment, 1}}, {});
  const at::Tensor argmax_R = target.head().argmax(target.final_norm(hidden.last_RD));
  const auto* argmax = argmax_R.const_data_ptr<int64_t>();
  Owned owned;
  for (int64_t t = 1; t < rows; ++t) {
    if (!mask[t]) continue;
    ++owned.supervised;
    owned.own += argmax[t - 1] == ids[t] ? 1 : 0;
  }
  return owned;
}

void check_owner(const data::Dataset& dataset, const target::Target& target, int64_t sample,
                 Findings& findings) {
  const c10::NoGradGuard no_grad;
  Owned sum;
  const int64_t documents = dataset.num_documents();
  const int64_t step = std::max<int64_t>(1, documents / std::max<int64_t>(1, sample));
  for (int64_t d = 0; d < documents; d += step) {
    const Owned owned = count_own(target, dataset.document_ids(d), dataset.document_mask(d));
    sum.own += owned.own;
    sum.supervised += owned.supervised;
  }
  const double share =
      static_cast<double>(sum.own) / static_cast<double>(std::max<int64_t>(1, sum.supervised));
  const std::string text =
      share_text(sum.own, sum.supervised) + " supervised tokens are the target's argmax";
  if (share > 0.97) {
    findings.ok("own answers", text + ": its own greedy answers");
  } else if (share > 0.75) {
    findings.ok("own answers", text + ": as for sampled answers of its own");
  } else {
    findings.wrong("own answers", text +
                                      ": others wrote these; let the target answer the prompts "
                                      "(regenerate)");
  }
}

}  // namespace

Findings check_dataset(const data::Dataset& dataset, const text::Tokenizer& tokenizer,
                       const target::Target* target, const DatasetCheckOptions& options) {
  Findings findings = Check(dataset, tokenizer).run();
  if (target) check_owner(dataset, *target, options.sample, findings);
  return findings;
}

}  // namespace dflash::doctor
