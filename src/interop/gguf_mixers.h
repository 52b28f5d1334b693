// Mixers with a state in GGUF files: gated delta nets, Mamba-2 and short convolutions. Source: llama.cpp's table of tensor
// names and its converters. Decay rates are stored as -exp(A_log), convolutions as [channels, taps].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights.h"
#include "interop/gguf.h"

namespace strata::interop {

// Sizes of the model's mixers, and which layers have them.
void add_mixers(GgufFields& fields, const std::string& arch, const models::ModelConfig& model);

// For a tensor of such a mixer in a layer, whose names begin with `layers` and the layer's number, adds the GGUF tensors
// that hold its values. Returns false for other tensors.
bool add_mixer_tensors(std::vector<GgufTensor>& tensors, std::string_view arch, std::string_view layers,
                       const checkpoint::FileTensor& tensor, const checkpoint::WeightSource& weights,
                       const models::ModelConfig& model, DType dtype);

// Factors that llama.cpp does not know, so that weights contain them: Falcon-H1's, in the order in which the converter
// multiplies. `name` is the GGUF tensor's.
std::vector<float> constants_of(std::string_view arch, const models::ModelConfig& model,
                                std::string_view name);

// The values of a tensor as the file has them, in fp32.
std::vector<float> values_in_file(const checkpoint::WeightSource& weights, const std::string& file_name);

}  // namespace strata::interop
