// Model folders as Hugging Face tools read and write them: config.json, tokenizer files, and the weights in
// model.safetensors or in shards that model.safetensors.index.json names.
// Errors: ConfigError for a missing folder or file, DataError for its content, WorldError for the disk.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_files.h"
#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

class ExpectedChecksums;

// The tensors of one or several open files, by name.
struct TensorSource {
  struct Entry {
    const TensorFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
  };
  std::string where;  // for messages
  std::vector<std::unique_ptr<TensorFile>> files;
  std::map<std::string, Entry, std::less<>> tensors;
};

// Opens a .safetensors file, or a file of torch.save with any other extension. ConfigError if it is missing,
// DataError for its content.
std::unique_ptr<TensorFile> open_tensor_container(const Path& path);

// Opens FOLDER/STEM.safetensors, else the shards that FOLDER/STEM.safetensors.index.json names, else
// FOLDER/pytorch_model.bin or its shards, whose pickles are read without executing anything. DataError for a
// missing shard, a disagreement between index and shards, or a tensor that is in two files.
TensorSource open_tensors(const Path& folder, const std::string& stem = "model");
TensorSource open_tensor_file(const Path& file);

// The text of FOLDER/config.json.
std::string read_config_json(const Path& folder);

struct LoadOptions {
  // Patterns (* and ?) of tensors that a file may contain but that are not read: masks, tied heads, rotary
  // tables.
  std::vector<std::string> ignore;
  bool check_finite = false;
  const ExpectedChecksums* checksums = nullptr;  // of a checkpoint; everything read must match
  int rank = 0;                                  // whose shards of split tensors are read
};

// Compares a source with the expected tensors (with the dtypes of memory). One DataError lists all
// disagreements: missing tensors and unexpected ones (unless ignored), each with the nearest name, and wrong
// shapes or dtypes.
void check_tensors(const TensorSource& source, std::span<const TensorSpec> expected,
                   const LoadOptions& options = {});

// Patterns of buffers in published checkpoints that are not weights.
std::vector<std::string> known_buffers();

// Fills every view from the tensor of the same name, converting and transposing it; several tensors in
// parallel. The views must pass check_tensors.
void load_tensors(const TensorSource& source, std::span<const MutableTensorView> views,
                  const LoadOptions& options = {});

// load_tensors on a folder.
void load_hf_tensors(const Path& folder, std::span<const MutableTensorView> views,
                     const LoadOptions& options = {});

// A small file that is copied unchanged: tokenizer.json, generation_config.json, …
struct NamedFile {
  std::string name;
  std::string bytes;
};

inline constexpr uint64_t kDefaultShardBytes = 5'000'000'000;

// The content of a model folder. Floats are stored as `dtype`. A tensor larger than max_shard_bytes gets its
// own shard.
struct ModelFiles {
  std::string config_json;
  std::vector<NamedFile> files;
  std::vector<TensorView> weights;
  DType dtype = DType::kBF16;
  uint64_t max_shard_bytes = kDefaultShardBytes;
};

// Writes the files of the model and the tensor files `more` into an existing folder; all ranks call it. Syncs
// every file but not the folder. Returns the written files on rank 0. `all_read`: as in write_tensor_files.
std::vector<StoredFile> write_model_files(FileSystem& files, const Path& folder, const ModelFiles& model,
                                          Together& ranks, std::vector<TensorFileContent> more = {},
                                          const std::function<void()>& all_read = {});

// The space that write_model_files will need on disk, in bytes.
uint64_t bytes_of(const ModelFiles& model);

// Writes a complete folder with checksums.json (manifest.h), which appears under its name only when it is
// complete. Replaces a model folder of that name; ConfigError for a folder with anything else in it. All
// ranks that hold a part of the model call it, each with its views; rank 0 writes all files without tensors.
void write_hf_directory(FileSystem& files, const Path& folder, const ModelFiles& model, Together ranks = {});

// WorldError with the missing space if `bytes` do not fit on the disk of a folder.
void check_space(FileSystem& files, const Path& folder, uint64_t bytes, std::string_view what);

}  // namespace strata::checkpoint
