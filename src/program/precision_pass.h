// Matmuls in 8 and 4 bits: which of a graph's matmuls read quantised operands, and where these are made.
#pragma once

#include "program/program.h"

namespace strata::program {

// Rewrites a differentiated graph, before recompute_pass(): the linear layers of attention and feed-forward blocks whose
// weights the recipe takes become `quantize` nodes and matmuls of codes. An operand is quantised once for all matmuls
// that read it; those that backward reads are all that it keeps of an input. Weights are quantised after each update;
// weights that ranks put together before their use, at each of these.
//
// A layout must not change rounding. Greatest magnitudes that several ranks share are gathered and reduced; a cut inside
// blocks throws ConfigError, which names the tensor and what would fit. `sequence_length`: of the rows of activations.
//
// Returns the histories of a recipe that takes scales from earlier steps (quantize/delayed.h), "history_input",
// "history_weight" and "history_gradient" of each weight that it takes; others return nothing. They are states of the
// optimizer's kind, one for a whole tensor, so that checkpoints have them and any layout continues from them. A step reads
// them, and finds the greatest magnitudes of its tensors while it quantises them: of inputs and gradients over all its
// micro-batches, of weights after the update before it. The update rolls those of all ranks into the histories.
std::vector<optim::State> precision_pass(graph::Graph& graph, const Precision& precision,
                                         int64_t sequence_length, const Words& words);

}  // namespace strata::program
