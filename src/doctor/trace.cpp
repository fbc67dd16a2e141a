// Trace files and our own stages in their form. The comparison: trace_compare.cpp.
#include "doctor/trace.h"

#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "io/safetensors.h"
#include "nn/tensor_io.h"

namespace dflash::doctor {
namespace {

constexpr const char* kFormat = "dflash-trace";
constexpr const char* kVersion = "1";

std::string metadata_of(const io::Checkpoint& file, const std::string& key,
                        const std::string& otherwise) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? otherwise : found->second;
}

bool of_context(const std::string& stage) {
  return stage == "taps" || stage == "fused" || stage.ends_with(".k") || stage.ends_with(".v");
}

std::vector<int64_t> integers(const io::Checkpoint& file, const std::string& name,
                              const std::shared_ptr<const io::Checkpoint>& owner) {
  const at::Tensor given = nn::to_tensor(file.get(name), owner);
  if (!at::isIntegralType(given.scalar_type(), /*includeBool=*/false)) {
    fail("{}: {}: expected whole numbers, got {}", file.path().string(), name,
         io::dtype_name(file.get(name).dtype));
  }
  const at::Tensor values = given.to(at::kLong).contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

}  // namespace

Trace read_trace(const std::filesystem::path& path) {
  const auto file = io::Checkpoint::open(path);
  const std::string format = metadata_of(*file, "format_name", "");
  const std::string version = metadata_of(*file, "version", "");
  if (format != kFormat || version != kVersion) {
    fail(
        "{}: expected a trace (metadata format_name \"{}\", version \"{}\"), got \"{}\", \"{}\"\n"
        "  hint: docs/TRACE.md describes the file",
        path.string(), kFormat, kVersion, format, version);
  }
  Trace trace{.program = metadata_of(*file, "program", "another program"),
              .dtype = metadata_of(*file, "dtype", ""),
              .ids = integers(*file, "ids", file)};
  if (trace.dtype != "f32" && trace.dtype != "bf16") {
    fail("{}: metadata dtype: expected f32 or bf16, got {}", path.string(), trace.dtype);
  }
  const auto anchor = integers(*file, "anchor", file);
  if (anchor.size() != 1 || anchor[0] < 0 || anchor[0] >= static_cast<int64_t>(trace.ids.size())) {
    fail("{}: anchor: expected one number in [0, {}), got [{}]", path.string(), trace.ids.size(),
         fmt::join(anchor, ", "));
  }
  trace.anchor = anchor[0];
  for (const auto& view : file->tensors()) {
    if (view.name == "ids" || view.name == "anchor") continue;
    trace.stages.add(view.name, nn::to_tensor(view, file));
  }
  return trace;
}

void write_trace(const std::filesystem::path& path, const Trace& trace, const Convention& how) {
  std::map<std::string, at::Tensor> tensors = {{"ids", at::tensor(trace.ids, at::kLong)},
                                               {"anchor", at::tensor({trace.anchor}, at::kLong)}};
  for (const auto& [name, value] : trace.stages.all()) tensors[name] = value.contiguous();
  nn::save_tensors(path, tensors,
                   {{"format_name", kFormat},
                    {"version", kVersion},
                    {"program", trace.program},
                    {"dtype", trace.dtype},
                    {"block_size", std::to_string(how.spec.rule.block_size)},
                    {"mask_id", std::to_string(how.spec.rule.mask_id)},
                    {"slot_shift", std::to_string(how.spec.rule.slot_shift)},
                    {"taps", fmt::format("{}", fmt::join(how.spec.taps, ","))}});
}

Stages trace_stages(const Convention& convention, const draft::Drafter& drafter,
                    std::shared_ptr<const target::Target> target, const std::vector<int64_t>& ids,
                    int64_t anchor) {
  data::Dataset dataset;
  dataset.add({.ids = ids, .loss_mask = std::vector<uint8_t>(ids.size(), 1)});
  const Stages all =
      training_stages(convention, drafter, std::move(target), dataset, {{0, anchor}});
  const int64_t shift = convention.spec.rule.layers.front().context_shift;
  const int64_t rows = std::max<int64_t>(0, anchor + shift);
  Stages stages;
  for (const auto& [name, value] : all.all()) {
    stages.add(name, of_context(name) ? value.narrow(0, 0, rows) : value.squeeze(0));
  }
  return stages;
}

}  // namespace dflash::doctor
