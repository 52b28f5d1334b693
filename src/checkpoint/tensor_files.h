// Tensor files, written by all ranks at once: the same bytes whatever each of them holds.
//
// Ranks exchange what lies in their blocks (block_plan.h), a block of each at a time, so that a rank has a
// few of them in memory (kStagingBlocks) whatever the model's size, and nobody ever holds more. Each writes
// its blocks in order, with a checksum of each tensor in them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/file.h"
#include "checkpoint/block_plan.h"
#include "checkpoint/together.h"

namespace strata::checkpoint {

// Blocks in a rank's memory at most: one that is written, two that arrive, two of what it sends; besides,
// some three quarters of one for conversions. A rank alone takes one.
inline constexpr int64_t kStagingBlocks = 5;

// Into a folder that all ranks see and that holds none of the files yet. Returns when all that they wrote is
// durable; the folder itself is not synced. On rank 0 with checksums, elsewhere without. WorldError where any
// rank could not write, on all of them: it is the caller's to remove what is there. `all_read` is called once
// this rank's storages are read no more.
std::vector<StoredFile> write_tensor_files(FileSystem& files, const Path& folder,
                                           std::span<const TensorFileContent> contents, Together& ranks,
                                           const std::function<void()>& all_read = {},
                                           int64_t block_bytes = kBlockBytes);
// The same of one file by this rank alone, which may replace another.
StoredFile write_tensor_file(FileSystem& files, const Path& path, std::span<const TensorView> tensors,
                             std::optional<DType> float_dtype,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The bytes of the elements in files.
uint64_t stored_bytes(const TensorView& tensor, std::optional<DType> float_dtype);

}  // namespace strata::checkpoint
