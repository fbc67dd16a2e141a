// libFuzzer: any bytes as a GGUF file either open, and then widen, or throw Error.
#include <vector>

#include "base/error.h"
#include "io/gguf.h"
#include "support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const dflash::testing::MemoryFile file({reinterpret_cast<const char*>(bytes), size});
  try {
    const auto model = dflash::io::GgufFile::open(file.path());
    for (const auto& tensor : model->tensors()) {
      std::vector<float> out(static_cast<size_t>(tensor.numel()));
      tensor.widen(out);
    }
  } catch (const dflash::Error&) {
  }
  return 0;
}
