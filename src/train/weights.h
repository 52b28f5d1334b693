// Between a model's parameters in the arena and the names and shapes of its files.
#pragma once

#include <vector>

#include "checkpoint/huggingface.h"
#include "models/model.h"
#include "program/executor.h"

namespace strata::train {

// Every tensor of the model's Hugging Face file, as a view into the arena (fp32 masters).
std::vector<checkpoint::MutableTensorView> weight_views(const models::ModelConfig& model,
                                                        const program::Executor& executor);
// The optimizer's moments under the same names with "m/" or "v/" before them.
std::vector<checkpoint::MutableTensorView> moment_views(const models::ModelConfig& model,
                                                        const program::Executor& executor);
std::vector<checkpoint::TensorView> read_only(const std::vector<checkpoint::MutableTensorView>& views);

// Fills every parameter as its family starts it: a pure function of (seed, parameter name, element). Moments
// are zero.
void initialize_weights(program::Executor& executor, uint64_t seed);

// The Hugging Face names of one of our parameters, for optimizer groups ("*embed_tokens*").
std::vector<std::string> file_names_of(const models::ModelConfig& model, const std::string& parameter);

// The family's optional prefix when the files leave it out, as those of a model class without a head do; else
// empty.
std::string left_out_prefix(const models::ModelConfig& model, const checkpoint::TensorSource& source);

// Reads a Hugging Face directory's weights into the arena; the caller encodes afterwards. Missing, unexpected
// and misshapen tensors and values that are not finite are one DataError.
void load_hugging_face(const Path& folder, const models::ModelConfig& model,
                       const program::Executor& executor);

}  // namespace strata::train
