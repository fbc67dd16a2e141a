// The writer: what it writes, the reference reader and ours accept.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "io/checked.h"
#include "io/safetensors.h"

namespace dflash::io {
namespace {

namespace fs = std::filesystem;

void check_views(const fs::path& path, const std::vector<TensorView>& tensors) {
  std::set<std::string_view> names;
  for (const TensorView& view : tensors) {
    if (view.name == "__metadata__" || !names.insert(view.name).second) {
      fail("cannot write {}: tensor name \"{}\" is reserved or used twice", path.string(),
           view.name);
    }
    const auto numel = checked_numel(view.shape);
    const auto size = numel ? checked_mul(*numel, dtype_bytes(view.dtype)) : std::nullopt;
    if (!size || *size != view.bytes.size()) {
      fail("cannot write {}: tensor {}: expected {} elements of {}, got {} bytes", path.string(),
           view.name, numel.value_or(-1), dtype_name(view.dtype), view.bytes.size());
    }
  }
}

/// Wide elements first, so that every tensor lies at a multiple of its element size; otherwise the
/// caller's order.
std::vector<const TensorView*> in_file_order(const std::vector<TensorView>& tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& view : tensors) order.push_back(&view);
  std::ranges::stable_sort(order, std::greater<>{},
                           [](const TensorView* view) { return dtype_bytes(view->dtype); });
  return order;
}

std::string make_header(const fs::path& path, const std::vector<const TensorView*>& order,
                        Metadata metadata) {
  metadata.emplace("format", "pt");  // some loaders refuse files without it
  OrderedJson header;
  header["__metadata__"] = metadata;
  uint64_t cursor = 0;
  for (const TensorView* view : order) {
    const uint64_t end = cursor + view->bytes.size();
    header[view->name] = {{"dtype", dtype_name(view->dtype)},
                          {"shape", view->shape},
                          {"data_offsets", {cursor, end}}};
    cursor = end;
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
  } catch (const OrderedJson::exception& error) {
    fail("cannot write {}: a name or metadata is no UTF-8: {}", path.string(), error.what());
  }
}

}  // namespace

void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const Metadata& metadata) {
  check_views(path, tensors);
  const auto order = in_file_order(tensors);
  const std::string header = make_header(path, order, metadata);
  write_atomically(path, [&](int fd) {
    const uint64_t header_bytes = header.size();
    write_all(fd, &header_bytes, sizeof(header_bytes), path);
    write_all(fd, header.data(), header.size(), path);
    for (const TensorView* view : order)
      write_all(fd, view->bytes.data(), view->bytes.size(), path);
  });
}

}  // namespace dflash::io
