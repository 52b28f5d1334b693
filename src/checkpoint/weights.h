// Maps a model's parameters in an executor to the tensors of its files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/expected_checksums.h"
#include "checkpoint/huggingface.h"
#include "models/model.h"
#include "program/executor.h"

namespace strata::checkpoint {

// Views of every tensor of the model's Hugging Face files in the executor (fp32 masters, or bf16 if a run has
// none), which must outlive them. On a mesh they describe the shard of each rank.
std::vector<checkpoint::MutableTensorView> weight_views(const models::ModelConfig& model,
                                                        const program::Executor& executor);
// Views of the optimizers' states, under the same names with the state's name as prefix: "m/…", "momentum/…".
// States with a value per element (or per row) have the tensor's shape and order in the file; the others, for
// example 8-bit moments and their scales, are stored as in memory. If a tensor has parts, each has its own state,
// since they may have different optimizers: "m/NAME#ROW", with the part's first row in the tensor.
std::vector<checkpoint::MutableTensorView> state_views(const models::ModelConfig& model,
                                                       const program::Executor& executor);
std::vector<checkpoint::TensorView> read_only(const std::vector<checkpoint::MutableTensorView>& views);

// A tensor of the model's Hugging Face files.
struct FileTensor {
  models::TensorRow row;
  Shape shape;                                 // in the file
  std::vector<models::TensorRow> others = {};  // the other parts, if it has parts
};
// Each once, in the order of the family.
std::vector<FileTensor> file_tensors(const models::ModelConfig& model);

// The open files of a Hugging Face directory, checked to match a model.
struct WeightSource {
  checkpoint::TensorSource source;
  std::string left_out;              // the family's optional prefix if the files omit it, else empty
  std::vector<std::string> ignored;  // names in the files that are not parameters
  std::span<const models::Family::OldEnding> old_endings;
  std::optional<ExpectedChecksums> checksums;  // of a checkpoint
  std::string name_in_file(const std::string& file_name) const;
  const checkpoint::TensorSource::Entry& entry(const std::string& file_name) const;
};
// Opens the weights of a model. DataError for a damaged checkpoint; for missing, unexpected and misshapen
// tensors, all in one; and for a copy of embedding or head (a tied head, or the copies of multi-token
// prediction layers) that differs from the original. Reads no other values.
WeightSource open_weights(const Path& folder, const models::ModelConfig& model);
// Makes the same checks, but copies and reads no values.
void check_weights(const Path& folder, const models::ModelConfig& model);
// Whether the files contain the multi-token prediction layers, which a config.json may declare without them.
bool holds_prediction(const Path& folder, const models::ModelConfig& model);
// Reads all weights; DataError for a NaN or infinity, and for a tensor that does not match the checkpoint's
// checksum.
void check_finite(const WeightSource& weights, const models::ModelConfig& model);

// Reads the weights into the executor; the caller then packs them. DataError for values that are not finite
// and for a damaged checkpoint. All ranks of the executor call it, each reads its shards.
void load_weights(const WeightSource& weights, const models::ModelConfig& model,
                  const program::Executor& executor);
// open_weights, then load_weights.
void load_hugging_face(const Path& folder, const models::ModelConfig& model,
                       const program::Executor& executor);

}  // namespace strata::checkpoint
