#include "jobs/capture.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/stop.h"
#include "data/features.h"
#include "nn/compute.h"

namespace dflash::jobs {
namespace {

data::FeatureInfo feature_info(const target::Target& target, const data::Dataset& dataset,
                               const CaptureOptions& options) {
  data::FeatureInfo info;
  info.target_fingerprint = target.fingerprint();
  info.storage = target.storage();
  info.kernels = nn::kernel_name(target.compute());
  info.taps = options.taps;
  info.hidden_size = target.config().hidden_size;
  info.dtype = options.f32 ? io::Dtype::kF32 : io::Dtype::kBF16;
  info.has_last = options.keep_last;
  info.dataset_fingerprint = data::dataset_fingerprint(dataset);
  return info;
}

/// Documents of the next target pass: whole ones, about `rows` tokens together.
std::vector<int64_t> next_pass(const data::Dataset& dataset, const std::vector<int64_t>& open,
                               size_t& cursor, int64_t rows) {
  std::vector<int64_t> documents;
  int64_t tokens = 0;
  while (cursor < open.size()) {
    const auto length = static_cast<int64_t>(dataset.document_ids(open[cursor]).size());
    if (!documents.empty() && tokens + length > rows) break;
    documents.push_back(open[cursor++]);
    tokens += length;
  }
  return documents;
}

struct PassResult {
  at::Tensor taps_RF, last_RD, argmax_R;  // argmax int64
  std::vector<int64_t> first_row;         // of every document, and the end
};

PassResult run_pass(const target::Target& target, const data::Dataset& dataset,
                    const std::vector<int64_t>& documents, const CaptureOptions& options) {
  const c10::NoGradGuard no_grad;  // the head must take the kernels of decoding
  PassResult result;
  std::vector<int64_t> ids, pos;
  std::vector<std::unique_ptr<target::State>> states;
  std::vector<target::Segment> segments;
  for (int64_t document : documents) {
    const auto tokens = dataset.document_ids(document);
    result.first_row.push_back(static_cast<int64_t>(ids.size()));
    states.push_back(target.new_state());
    segments.push_back({states.back().get(), static_cast<int64_t>(ids.size()),
                        static_cast<int64_t>(tokens.size()), /*undo=*/false});
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids.push_back(tokens[i]);
      pos.push_back(static_cast<int64_t>(i));
    }
  }
  result.first_row.push_back(static_cast<int64_t>(ids.size()));
  const auto hidden = target.forward(
      {at::tensor(ids, at::kLong), at::tensor(pos, at::kLong), segments}, {.taps = options.taps});
  result.taps_RF = hidden.taps_RF;
  result.last_RD = hidden.last_RD;
  result.argmax_R = target.head().argmax(target.final_norm(hidden.last_RD));
  return result;
}

void append_rows(std::vector<std::byte>& bytes, const at::Tensor& rows, at::ScalarType dtype) {
  const at::Tensor converted = rows.to(dtype).contiguous();
  const auto* data = static_cast<const std::byte*>(converted.const_data_ptr());
  bytes.insert(bytes.end(), data, data + converted.nbytes());
}

/// Appends the pass's documents to the shard; documents with a NaN or infinite feature are left
/// out.
int64_t append_documents(data::FeatureShard& shard, const data::Dataset& dataset,
                         const std::vector<int64_t>& documents, const PassResult& pass,
                         const CaptureOptions& options) {
  const auto dtype = options.f32 ? at::kFloat : at::kBFloat16;
  const auto* argmax = pass.argmax_R.const_data_ptr<int64_t>();
  int64_t bad = 0;
  for (size_t d = 0; d < documents.size(); ++d) {
    const int64_t begin = pass.first_row[d], length = pass.first_row[d + 1] - begin;
    const at::Tensor taps = pass.taps_RF.narrow(0, begin, length);
    const at::Tensor last = pass.last_RD.narrow(0, begin, length);
    if (!(taps.sum() + last.sum()).isfinite().item<bool>()) {
      log_warning("document {}: its features are not finite; left out", documents[d]);
      bad += 1;
      continue;
    }
    const auto ids = dataset.document_ids(documents[d]);
    shard.documents.push_back(documents[d]);
    shard.ids.insert(shard.ids.end(), ids.begin(), ids.end());
    shard.argmax.insert(shard.argmax.end(), argmax + begin, argmax + begin + length);
    shard.offsets.push_back(static_cast<int64_t>(shard.ids.size()));
    append_rows(shard.taps, taps, dtype);
    if (options.keep_last) append_rows(shard.last, last, dtype);
  }
  return bad;
}

/// One or two bad documents of a small dataset are no share yet, unless they are all of it.
bool too_many_bad(int64_t bad, int64_t documents, double max_share) {
  return bad >= std::min<int64_t>(3, documents) &&
         static_cast<double>(bad) > max_share * static_cast<double>(documents);
}

std::vector<int64_t> open_documents(const data::Dataset& dataset,
                                    const std::vector<int64_t>& done) {
  const std::set<int64_t> finished(done.begin(), done.end());
  std::vector<int64_t> open;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    if (!finished.contains(d)) open.push_back(d);
  }
  return open;
}

/// Whether `out` already holds all features that `wanted` describes. Error when it is complete with
/// others.
bool is_complete(const std::filesystem::path& out, const data::FeatureInfo& wanted) {
  const auto path = out / "features.json";
  if (!std::filesystem::exists(path) || !read_json(path).value("complete", false)) return false;
  const auto info = data::FeatureReader(out).info();
  data::check_features(info, wanted.taps, wanted.hidden_size, wanted.target_fingerprint);
  data::check_dataset(info, wanted.dataset_fingerprint);
  if (info.dtype != wanted.dtype) {
    fail("{} is complete, with values as {}, not {}\n  hint: choose another --out", out.string(),
         io::dtype_name(info.dtype), io::dtype_name(wanted.dtype));
  }
  const auto compute = [](const std::string& kernels) {  // "amx-bf16"
    return kernels.substr(kernels.rfind('-') + 1);
  };
  if (compute(info.kernels) != compute(wanted.kernels)) {
    fail("{} is complete, computed in {}, not {}\n  hint: the same --dtype, or another --out",
         out.string(), compute(info.kernels), compute(wanted.kernels));
  }
  if (wanted.has_last && !info.has_last) {
    fail(
        "{} is complete, but without the final states that soft losses want\n  hint: choose "
        "another --out",
        out.string());
  }
  return true;
}

}  // namespace

std::string CaptureReport::text() const {
  return fmt::format("{} documents ({} were there), {} tokens in {}, {} left out{}", documents,
                     resumed, tokens, format_duration(seconds), quarantined,
                     stopped ? "; stopped early, the same command goes on" : "");
}

Json CaptureReport::to_json() const {
  return {{"documents", documents},     {"resumed", resumed}, {"tokens", tokens},
          {"quarantined", quarantined}, {"seconds", seconds}, {"taps", taps},
          {"stopped", stopped}};
}

CaptureReport capture(const target::Target& target, const data::Dataset& dataset,
                      const CaptureOptions& options) {
  const data::FeatureInfo info = feature_info(target, dataset, options);
  if (is_complete(options.out, info)) {
    return {.resumed = dataset.num_documents(), .taps = options.taps};
  }
  claim_folder(options.out, "features.json");
  const auto lock = lock_folder(options.out);
  data::FeatureWriter writer(options.out, info);
  const auto open = open_documents(dataset, writer.done());
  CaptureReport report{.resumed = static_cast<int64_t>(writer.done().size()), .taps = options.taps};
  const int64_t row_bytes =
      static_cast<int64_t>(options.taps.size() + (options.keep_last ? 1 : 0)) *
      target.config().hidden_size * (options.f32 ? 4 : 2);
  int64_t open_tokens = 0;
  for (int64_t d : open) open_tokens += static_cast<int64_t>(dataset.document_ids(d).size());
  require_free_space(options.out, static_cast<uint64_t>(open_tokens * row_bytes));
  Timer timer;
  Progress progress("capture", "tokens", open_tokens);
  data::FeatureShard shard;
  size_t cursor = 0;
  while (cursor < open.size() && !stop_requested()) {
    const auto documents = next_pass(dataset, open, cursor, options.rows_per_pass);
    const auto pass = run_pass(target, dataset, documents, options);
    report.quarantined += append_documents(shard, dataset, documents, pass, options);
    report.documents += static_cast<int64_t>(documents.size());
    report.tokens += pass.first_row.back();
    if (too_many_bad(report.quarantined, dataset.num_documents(), options.max_bad_share)) {
      fail(
          "{} of {} documents have features that are not finite\n  hint: the target overflows in "
          "its storage type; try --dtype f32",
          report.quarantined, dataset.num_documents());
    }
    if (static_cast<int64_t>(shard.ids.size()) >= options.tokens_per_shard) {
      writer.write(shard);
      shard = {};
    }
    progress.update(report.tokens);
  }
  if (!shard.documents.empty()) writer.write(shard);
  report.stopped = cursor < open.size();
  if (!report.stopped) writer.finish();
  report.seconds = timer.seconds();
  progress.finish();
  return report;
}

}  // namespace dflash::jobs
