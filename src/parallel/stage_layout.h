// Assigns the parts of a model to pipeline stages: from a list, from Megatron-LM's layout string, or balanced
// by cost. The parts are ordered: embedding, layers (an encoder's before a decoder's), multi-token prediction
// layers, head; each stage has a contiguous range of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/words.h"

namespace strata::parallel {

struct ModelParts {
  int32_t layers = 0;             // of encoder and decoder together
  int32_t encoder_layers = 0;     // 0 unless a decoder reads an encoder's output
  int32_t prediction_layers = 0;  // multi-token prediction
  bool tied_embeddings = false;   // the head is the embedding's table
};

struct StageParts {
  bool has_embedding = false;
  int32_t first_layer = 0, layers = 0;
  int32_t prediction_layers = 0;
  bool has_head = false;
  bool operator==(const StageParts&) const = default;
};
using StageLayout = std::vector<StageParts>;  // by stage

// From the number of layers of each stage; prediction layers go with the head. ConfigError unless `layers`
// has `stages` entries that add up to the model's layers.
StageLayout layout_of_list(std::span<const int64_t> layers, const ModelParts& model, int32_t stages,
                           const Words& words = {});

// From Megatron-LM's string: E embedding, t layer, m prediction layer, L head with the loss; | ends a stage,
// x*n and (…)*n repeat, commas and blanks are ignored. Stages may be empty. E comes first, in the first
// stage, and L last, in the last; no t follows an m. "Et|(tt|)*30mL" is 61 layers in 32 stages. A ConfigError
// names the position in the string.
StageLayout parse_layout(std::string_view text, const ModelParts& model, int32_t stages,
                         const Words& words = {});
// The inverse of parse_layout, without repeats.
std::string layout_text(const StageLayout& layout);

// The cost of each part, in any unit.
struct PartCosts {
  double embedding = 0;
  std::vector<double> layers;
  double prediction_layer = 0;  // each
  double head = 0;
};
double cost_of(const StageParts& stage, const PartCosts& costs);

// The layout whose most expensive stage costs least; among equals the most even one (least sum of squares),
// then the one with fewer layers in the first stages, which hold the most micro-batches. No stage is empty;
// prediction layers stay with the head, which they share. ConfigError if there are fewer parts than stages.
StageLayout balanced_layout(const PartCosts& costs, const ModelParts& model, int32_t stages,
                            const Words& words = {});

// Stages that use the same table. If they are on several ranks, the table's gradients are summed over these
// ranks. With tied embeddings both lists are equal.
struct SharedTables {
  std::vector<int32_t> embedding;  // stages that embed tokens: also a decoder's first, and prediction layers
  std::vector<int32_t> head;
};
SharedTables shared_tables(const StageLayout& layout, const ModelParts& model);

// The values that one stage sends to the next.
struct Boundary {
  bool hidden = true;           // the residual stream of the encoder, or of the decoder
  bool encoder_output = false;  // read by the decoder layers of later stages
  bool operator==(const Boundary&) const = default;
};
// The boundary after `stage`, which is not the last.
Boundary boundary_after(const StageLayout& layout, const ModelParts& model, int32_t stage);

}  // namespace strata::parallel
