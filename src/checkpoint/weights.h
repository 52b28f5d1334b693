// Between a model's parameters in an executor and the names and shapes of its files.
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

// Every tensor of the model's Hugging Face file, as it lies in the executor (fp32 masters), which must
// outlive the views. On a mesh of ranks, how each of them holds a part of it.
std::vector<checkpoint::MutableTensorView> weight_views(const models::ModelConfig& model,
                                                        const program::Executor& executor);
// The optimizers' states under the same names with the state's before them: "m/…", "momentum/…". Those that
// lie element by element (or row by row) have the tensor's shape and order; the others, as moments of one
// byte and their scales, are as they lie in memory.
std::vector<checkpoint::MutableTensorView> state_views(const models::ModelConfig& model,
                                                       const program::Executor& executor);
std::vector<checkpoint::TensorView> read_only(const std::vector<checkpoint::MutableTensorView>& views);

// A tensor as the model's Hugging Face file holds it.
struct FileTensor {
  models::TensorRow row;
  Shape shape;  // in the file
};
std::vector<FileTensor> file_tensors(const models::ModelConfig& model);

// The open files of a Hugging Face directory that hold exactly this model.
struct WeightSource {
  checkpoint::TensorSource source;
  std::string left_out;              // the family's optional prefix where the files leave it out, else empty
  std::vector<std::string> ignored;  // names in the files that are no parameters
  std::span<const models::Family::OldEnding> old_endings;
  std::optional<ExpectedChecksums> checksums;  // of a checkpoint
  std::string name_in_file(const std::string& file_name) const;
  const checkpoint::TensorSource::Entry& entry(const std::string& file_name) const;
};
// A checkpoint must be whole. Missing, unexpected and misshapen tensors are one DataError, and so is a copy
// of embedding or head (a tied head, or one beside layers that predict further tokens) that differs. No
// values are looked at otherwise.
WeightSource open_weights(const Path& folder, const models::ModelConfig& model);
// The same without looking at any value: whether the files hold this model.
void check_weights(const Path& folder, const models::ModelConfig& model);
// Whether the files hold the layers that predict further tokens, of which a config.json may tell in vain.
bool holds_prediction(const Path& folder, const models::ModelConfig& model);
// Reads all weights; DataError for a NaN or an infinity, and for one that is not as a checkpoint has saved
// it.
void check_finite(const WeightSource& weights, const models::ModelConfig& model);

// Reads the weights into the executor; the caller encodes afterwards. Values that are not finite and those of
// a damaged checkpoint are DataErrors. All ranks of the executor call it, each for what it holds.
void load_weights(const WeightSource& weights, const models::ModelConfig& model,
                  const program::Executor& executor);
// open_weights and load_weights.
void load_hugging_face(const Path& folder, const models::ModelConfig& model,
                       const program::Executor& executor);

}  // namespace strata::checkpoint
