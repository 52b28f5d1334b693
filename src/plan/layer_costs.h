// Costs of layers for which the formulas have no closed form: other mixers than dense attention, attention to chosen
// keys. The formulas add up over stages, schedules and shards what layers cost, and need not know their ops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/catalogue.h"

namespace strata::planning {

struct TrainingJob;

// One layer on one rank, for one micro-batch: a mixer, an FFN or both, without experts.
struct LayerCost {
  double parameters = 0;  // of a tensor rank
  double multiplied = 0;  // of these, those that matmuls read in the type of activations
  // Seconds of F, I and W with waiting for exchanges; `input_grad` is B where I and W are not separate.
  double forward = 0, input_grad = 0, weight_grad = 0;
  // Of these: waiting for exchanges of the tensor and context axes.
  double tensor = 0, context = 0;
  double updating = 0;  // seconds of a step in small kernels of the update
  // Bytes that stay from F to I (or to B), from F to W and from I to W, and the most that live within an action.
  double to_input = 0, to_weight = 0, input_to_weight = 0, action = 0;
  // The same where micro-batches follow one another: bytes that stay from F to B, and the most of the others.
  double kept = 0, working = 0;
  double tensor_sent = 0, context_sent = 0;  // bytes that a rank sends to others
};

// Thread-safe.
class LayerCosts {
 public:
  virtual ~LayerCosts() = default;
  // `kind`: an entry of ModelShape::kinds.
  virtual LayerCost of(int32_t kind, const TrainingJob& job, const ClusterSpec& cluster) const = 0;
  // Why the job's tensor and context ranks cannot share these layers; empty: they can.
  virtual std::string refusal(const TrainingJob& job, const ClusterSpec& cluster) const = 0;
  // FLOPs of each layer with its experts for a token of sequences of this length, forward and backward, with half of
  // the scores: stages are balanced by them.
  virtual std::vector<double> flops(int64_t sequence) const = 0;
};

}  // namespace strata::planning
