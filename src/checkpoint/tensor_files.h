// Writes tensor files by all ranks in parallel. The bytes do not depend on which rank holds what.
//
// Ranks exchange the elements of their blocks (block_plan.h), one block of each rank per round, so no rank
// ever has more than kStagingBlocks blocks in memory, whatever the model's size. Each rank writes its blocks
// in order and computes a checksum of every tensor's bytes in each.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/file.h"
#include "checkpoint/block_plan.h"
#include "checkpoint/together.h"

namespace strata::checkpoint {

// Largest number of blocks in a rank's memory: one being written, two being received, two being sent.
// Conversions need about three quarters of a block in addition. A single rank needs one block.
inline constexpr int64_t kStagingBlocks = 5;

// Writes into a folder that all ranks share and that contains none of the files. Returns when all files are
// durable; does not sync the folder. The result has checksums on rank 0 only. WorldError on all ranks if any
// of them cannot write; the caller must then remove the files. `all_read` is called when this rank's storages
// have been read for the last time.
std::vector<StoredFile> write_tensor_files(FileSystem& files, const Path& folder,
                                           std::span<const TensorFileContent> contents, Together& ranks,
                                           const std::function<void()>& all_read = {},
                                           int64_t block_bytes = kBlockBytes);
// Writes one file on this rank only; replaces an existing one.
StoredFile write_tensor_file(FileSystem& files, const Path& path, std::span<const TensorView> tensors,
                             std::optional<DType> float_dtype,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// Bytes of a tensor's elements in a file.
uint64_t stored_bytes(const TensorView& tensor, std::optional<DType> float_dtype);

}  // namespace strata::checkpoint
