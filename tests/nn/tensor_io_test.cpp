// Tensors to files and back, bit for bit, and what the writer refuses.
#include "nn/tensor_io.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"

namespace dflash::nn {
namespace {

TEST(TensorIo, EveryTypeComesBackBitForBit) {
  const testing::TempFolder folder;
  std::map<std::string, at::Tensor> tensors;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                           at::kShort, at::kChar, at::kByte}) {
    tensors[c10::toString(dtype)] = at::arange(24).view({2, 3, 4}).to(dtype);
  }
  tensors["bool"] = at::arange(5).to(at::kBool);
  tensors["empty"] = at::zeros({0, 3});
  tensors["scalar"] = at::tensor(2.5F);
  tensors["transposed"] = at::randn({3, 5}).t();
  const auto path = folder.path() / "x.safetensors";
  save_tensors(path, tensors);
  const auto back = load_tensors(path);
  ASSERT_EQ(back.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(back.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(back.at(name), tensor)) << name;
  }
}

TEST(TensorIo, LoadedTensorsKeepTheirFile) {
  const testing::TempFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const at::Tensor values = at::randn({100});
  save_tensors(path, {{"a", values}});
  at::Tensor kept = load_tensors(path).at("a");
  std::filesystem::remove(path);
  EXPECT_TRUE(at::equal(kept, values));
}

TEST(TensorIo, RefusesTypesWithoutAName) {
  const testing::TempFolder folder;
  const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  EXPECT_THROW(save_tensors(folder.path() / "x.safetensors", {{"c", complex}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace dflash::nn
