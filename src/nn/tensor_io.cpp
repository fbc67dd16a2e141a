#include "nn/tensor_io.h"

#include "base/error.h"

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
