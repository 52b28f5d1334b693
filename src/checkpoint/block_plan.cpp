#include "checkpoint/block_plan.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/regions.h"

namespace strata::checkpoint {
namespace {

// Elements that are read, transposed and converted at a time: at most 1 MiB in the dtype of memory.
int64_t slice_elements(const TensorView& view) {
  return kChunkBytes / 4 / size_of(view.memory_dtype);
}

}  // namespace

BlockPlan::BlockPlan(std::span<const TensorFileContent> files, int64_t ranks, int64_t block_bytes)
    : contents_(files), ranks_(ranks), block_bytes_(block_bytes) {
  for (const TensorFileContent& content : files) {
    File& file = files_.emplace_back();
    for (const TensorView& view : content.tensors) {
      check_view(view);
      for_each_part(view, [&](const TensorView& part) {
        STRATA_CHECK(!part.split || part.split->mesh().ranks() == ranks,
                     "'{}' is sharded over {} ranks, but {} ranks save it", view.name,
                     part.split->mesh().ranks(), ranks);
      });
      file.specs.push_back({view.name, view.stored_dtype(content.float_dtype), view.stored_shape()});
    }
    file.layout = plan_safetensors(file.specs, content.metadata);
    for (size_t i = 0; i < file.specs.size(); ++i)
      STRATA_CHECK(file.layout.offset[i] % static_cast<uint64_t>(size_of(file.specs[i].dtype)) == 0,
                   "'{}' does not begin at a multiple of its element size", file.specs[i].name);
    file.first_block = blocks_;
    const auto bytes = static_cast<int64_t>(file.layout.file_bytes);
    blocks_ += (bytes + block_bytes - 1) / block_bytes;
  }
}

BlockPlan::Block BlockPlan::block(int64_t index) const {
  const auto after = std::upper_bound(files_.begin(), files_.end(), index,
                                      [](int64_t at, const File& file) { return at < file.first_block; });
  const auto file = static_cast<size_t>(after - files_.begin()) - 1;
  const auto size = static_cast<uint64_t>(block_bytes_);
  const uint64_t offset = static_cast<uint64_t>(index - files_[file].first_block) * size;
  return {file, offset, std::min(size, files_[file].layout.file_bytes - offset)};
}

BlockPlan::BlockRange BlockPlan::blocks_of(int64_t rank) const {
  return {rank * blocks_ / ranks_, (rank + 1) * blocks_ / ranks_};
}

int64_t BlockPlan::rounds() const {
  return (blocks_ + ranks_ - 1) / ranks_;
}

std::vector<BlockPlan::TensorRange> BlockPlan::tensor_ranges(const Block& block) const {
  const File& file = files_[block.file];
  const uint64_t end = block.offset + block.bytes;
  const auto& order = file.layout.order;
  // Start with the last tensor that begins at or before the block.
  auto at = std::upper_bound(order.begin(), order.end(), block.offset, [&](uint64_t offset, size_t tensor) {
    return offset < file.layout.offset[tensor];
  });
  if (at != order.begin()) --at;
  std::vector<TensorRange> ranges;
  for (; at != order.end() && file.layout.offset[*at] < end; ++at) {
    const uint64_t begins = file.layout.offset[*at];
    const auto width = static_cast<uint64_t>(size_of(file.specs[*at].dtype));
    const uint64_t ends = begins + static_cast<uint64_t>(file.specs[*at].shape.elements()) * width;
    const uint64_t from = std::max(begins, block.offset), to = std::min(ends, end);
    if (from >= to) continue;
    ranges.push_back({*at, static_cast<int64_t>((from - begins) / width),
                      static_cast<int64_t>((to - from) / width), static_cast<int64_t>(from - block.offset)});
  }
  return ranges;
}

void BlockPlan::for_each_transfer(const Block& block, int64_t sender, int64_t writer,
                                  FunctionRef<void(const Transfer&)> each) const {
  for (const TensorRange& range : tensor_ranges(block)) {
    const int64_t width = size_of(dtype(block.file, range.tensor));
    for_each_part(contents_[block.file].tensors[range.tensor], [&](const TensorView& view) {
      if (view.split ? !view.split->serves(sender, writer) : sender != writer) return;
      const TensorShard shard = shard_of(view, sender);
      const FileOrder order = order_of(view);
      const int64_t slice = slice_elements(view);
      for (int64_t done = 0; done < range.count; done += slice) {
        for_each_region(
            order, shard, range.first + done, std::min(slice, range.count - done), [&](const Region& region) {
              each({range.tensor, &view, region, range.in_block + (region.in_file - range.first) * width});
            });
      }
    });
  }
}

int64_t BlockPlan::transfer_bytes(const Block& block, int64_t sender, int64_t writer) const {
  int64_t bytes = 0;
  for_each_transfer(block, sender, writer, [&](const Transfer& transfer) {
    bytes += transfer.region.rows * transfer.region.columns * size_of(dtype(block.file, transfer.tensor));
  });
  return bytes;
}

}  // namespace strata::checkpoint
