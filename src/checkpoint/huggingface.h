// Model folders as Hugging Face tools read and write them: config.json, tokenizer files, and the weights in
// model.safetensors or in shards that model.safetensors.index.json names.
// Errors: ConfigError for a folder or file that is not there, DataError for what is in it, WorldError for the
// disk.
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

// Opens either format, by the file's first bytes. ConfigError where it is not there, DataError for what is in
// it.
std::unique_ptr<TensorFile> open_tensor_container(const Path& path);

// FOLDER/STEM.safetensors, or else the shards of FOLDER/STEM.safetensors.index.json, or else the same of
// FOLDER/pytorch_model.bin, whose pickles are read without executing anything. A shard that is not there, a
// tensor that the index and the shards do not agree about, or one that stands twice: DataError.
TensorSource open_tensors(const Path& folder, const std::string& stem = "model");
TensorSource open_tensor_file(const Path& file);

// The text of FOLDER/config.json, which maps to a model elsewhere.
std::string read_config_json(const Path& folder);

struct LoadOptions {
  // Patterns (* and ?) of tensors that a file may hold and nobody wants: masks, tied heads, rotary tables.
  std::vector<std::string> ignore;
  bool check_finite = false;
  const ExpectedChecksums* checksums = nullptr;  // of a checkpoint: what is read must match
  int rank = 0;                                  // whose parts of split tensors are read
};

// Every disagreement between what is expected (a dtype: that of the memory it is for) and a source is one
// DataError: missing tensors, tensors that nobody expects (unless ignored), wrong shapes, each with the
// nearest name.
void check_tensors(const TensorSource& source, std::span<const TensorSpec> expected,
                   const LoadOptions& options = {});

// Buffers that published checkpoints carry along and that are no weights.
std::vector<std::string> known_buffers();

// Fills every view from the tensor of its name, converting and transposing on the way, several tensors at
// once. The views must pass check_tensors.
void load_tensors(const TensorSource& source, std::span<const MutableTensorView> views,
                  const LoadOptions& options = {});

// load_tensors on a folder.
void load_hf_tensors(const Path& folder, std::span<const MutableTensorView> views,
                     const LoadOptions& options = {});

// A small file that goes into a folder as it is: tokenizer.json, generation_config.json, …
struct NamedFile {
  std::string name;
  std::string bytes;
};

inline constexpr uint64_t kDefaultShardBytes = 5'000'000'000;

// Everything of a model folder. Floats are stored as `dtype`. A tensor larger than max_shard_bytes gets a
// shard of its own.
struct ModelFiles {
  std::string config_json;
  std::vector<NamedFile> files;
  std::vector<TensorView> weights;
  DType dtype = DType::kBF16;
  uint64_t max_shard_bytes = kDefaultShardBytes;
};

// Writes into a folder that exists, by all ranks, `more` tensor files beside those of the model; every file
// is synced, the folder is not. What was written, on rank 0. `all_read`: as in write_tensor_files.
std::vector<StoredFile> write_model_files(FileSystem& files, const Path& folder, const ModelFiles& model,
                                          Together& ranks, std::vector<TensorFileContent> more = {},
                                          const std::function<void()>& all_read = {});

// The bytes that write_model_files will take on the disk.
uint64_t bytes_of(const ModelFiles& model);

// The whole folder at once, with checksums.json (manifest.h): it appears when it is complete. A model folder
// of that name is replaced; one that holds anything else is refused (ConfigError). Of a model that several
// ranks hold, all of them write it, each with its views; all else is rank 0's.
void write_hf_directory(FileSystem& files, const Path& folder, const ModelFiles& model, Together ranks = {});

// WorldError that says how much is missing when `bytes` do not fit on the disk of a folder.
void check_space(FileSystem& files, const Path& folder, uint64_t bytes, std::string_view what);

}  // namespace strata::checkpoint
