#include "nn/tensor_io.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "io/gguf_blocks.h"

namespace dflash::nn {
namespace {

struct DtypePair {
  io::Dtype file;
  at::ScalarType torch;
};
constexpr DtypePair kDtypes[] = {{io::Dtype::kF64, at::kDouble}, {io::Dtype::kF32, at::kFloat},
                                 {io::Dtype::kF16, at::kHalf},   {io::Dtype::kBF16, at::kBFloat16},
                                 {io::Dtype::kI64, at::kLong},   {io::Dtype::kI32, at::kInt},
                                 {io::Dtype::kI16, at::kShort},  {io::Dtype::kI8, at::kChar},
                                 {io::Dtype::kU8, at::kByte},    {io::Dtype::kBool, at::kBool}};

at::ScalarType torch_dtype(io::Dtype dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.file == dtype) return pair.torch;
  }
  DF_ASSERT(false, "dtype {}", static_cast<int>(dtype));
}

io::Dtype file_dtype(const std::string& name, at::ScalarType dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.torch == dtype) return pair.file;
  }
  fail("save: {}: safetensors has no type for {}", name, c10::toString(dtype));
}

}  // namespace

at::Tensor to_tensor(const io::TensorView& view, std::shared_ptr<const void> owner) {
  const at::TensorOptions options(torch_dtype(view.dtype));
  if (view.bytes.empty()) return at::empty(view.shape, options);
  // The mapping is read-only; at::Tensor has no const data, so writing to it would be a fault.
  void* data = const_cast<std::byte*>(view.bytes.data());
  if (reinterpret_cast<uintptr_t>(data) % io::dtype_bytes(view.dtype) == 0) {
    return at::from_blob(
        data, view.shape, [owner](void*) {}, options);
  }
  at::Tensor copy = at::empty(view.shape, options);
  std::memcpy(copy.mutable_data_ptr(), data, view.bytes.size());
  return copy;
}

at::Tensor to_tensor(const io::GgufTensor& tensor) {
  at::Tensor values = at::empty(tensor.shape, at::kFloat);
  tensor.widen({values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
  return values;
}

std::optional<BlockWeight> to_blocks(const io::GgufTensor& tensor) {
  const auto kind = io::block_kind(tensor.type);
  if (!kind || tensor.shape.back() % kBlockWidth != 0) return std::nullopt;
  std::vector<int64_t> shape = tensor.shape;
  shape.back() /= kBlockWidth;
  BlockWeight out{.bits = kind->bits,
                  .codes_OI = at::empty(tensor.shape, at::kChar),
                  .scale_OB = at::empty(shape, at::kFloat)};
  if (kind->with_least) out.least_OB = at::empty(shape, at::kFloat);
  const auto span = [](at::Tensor& t) {
    return t.defined() ? std::span(t.mutable_data_ptr<float>(), static_cast<size_t>(t.numel()))
                       : std::span<float>();
  };
  io::split_blocks(tensor.type, tensor.bytes,
                   {{out.codes_OI.mutable_data_ptr<int8_t>(), static_cast<size_t>(tensor.numel())},
                    span(out.scale_OB),
                    span(out.least_OB)});
  return out;
}

io::TensorView to_view(const std::string& name, const at::Tensor& tensor) {
  DF_ASSERT(tensor.is_contiguous() && tensor.device().is_cpu(), "{}: contiguous CPU tensor", name);
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return {name,
          file_dtype(name, tensor.scalar_type()),
          tensor.sizes().vec(),
          {data, static_cast<size_t>(tensor.nbytes())}};
}

void save_tensors(const std::filesystem::path& path,
                  const std::map<std::string, at::Tensor>& tensors, const io::Metadata& metadata) {
  std::vector<at::Tensor> kept;  // what the views point into
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.detach().cpu().contiguous());
    views.push_back(to_view(name, kept.back()));
  }
  io::write_safetensors(path, views, metadata);
}

std::map<std::string, at::Tensor> load_tensors(const std::filesystem::path& path) {
  const std::shared_ptr<const io::Checkpoint> file = io::Checkpoint::open(path);
  std::map<std::string, at::Tensor> tensors;
  for (const io::TensorView& view : file->tensors()) tensors[view.name] = to_tensor(view, file);
  return tensors;
}

}  // namespace dflash::nn
