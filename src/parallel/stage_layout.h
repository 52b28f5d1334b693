// Which parts of a model each stage of a pipeline has: from a list, from Megatron-LM's layout string, or
// balanced by cost. Parts stand in one row: embedding, layers (an encoder's before a decoder's), layers for
// predicting further tokens, head; each stage has a stretch of it.
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
  int32_t encoder_layers = 0;     // 0 where there is no decoder that reads an encoder's output
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

// Of a list with the layers of each stage; prediction layers go with the head. ConfigError where they are not
// `stages` numbers that add up to the model's layers.
StageLayout layout_of_list(std::span<const int64_t> layers, const ModelParts& model, int32_t stages,
                           const Words& words = {});

// Of Megatron-LM's string: E embedding, t layer, m prediction layer, L head with the loss; | ends a stage,
// x*n and (…)*n repeat, commas and blanks mean nothing. Stages may be empty. E comes first, in the first
// stage, and L last, in the last; no t behind an m. "Et|(tt|)*30mL" is 61 layers in 32 stages. ConfigError
// tells the place.
StageLayout parse_layout(std::string_view text, const ModelParts& model, int32_t stages,
                         const Words& words = {});
// As that string, without repeats.
std::string layout_text(const StageLayout& layout);

// What each part costs, in any unit.
struct PartCosts {
  double embedding = 0;
  std::vector<double> layers;
  double prediction_layer = 0;  // each
  double head = 0;
};
double cost_of(const StageParts& stage, const PartCosts& costs);

// The stretches with the least cost of the dearest stage; of those the ones nearest to even (least sum of
// squares), then those with fewer layers in the first stages, which hold most micro-batches. No stage is
// empty; prediction layers stay with the head, which they share. ConfigError where there are fewer parts than
// stages.
StageLayout balanced_layout(const PartCosts& costs, const ModelParts& model, int32_t stages,
                            const Words& words = {});

// Stages that need one and the same table; where they lie on several ranks, its gradients are added up over
// those. Tied, both lists are the same.
struct SharedTables {
  std::vector<int32_t>
      embedding;  // where tokens become vectors: also for a decoder, and for prediction layers
  std::vector<int32_t> head;
};
SharedTables shared_tables(const StageLayout& layout, const ModelParts& model);

// What passes from one stage to the next.
struct Boundary {
  bool hidden = true;           // the residual stream of the encoder, or of the decoder
  bool encoder_output = false;  // for the decoder's layers behind
  bool operator==(const Boundary&) const = default;
};
// Behind `stage`, which is not the last.
Boundary boundary_after(const StageLayout& layout, const ModelParts& model, int32_t stage);

}  // namespace strata::parallel
