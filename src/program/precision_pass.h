// Matmuls in 8 and 4 bits: which of a graph's matmuls read quantised operands, and where these are made.
#pragma once

#include "program/program.h"

namespace strata::program {

// Rewrites a differentiated graph, before recompute_pass(): the linear layers of attention and feed-forward blocks, and
// the experts, whose weights the recipe takes become `quantize` nodes and matmuls of codes. An operand is quantised once for all matmuls
// that read it; those that backward reads are all that it keeps of an input. Weights are quantised after each update;
// weights that ranks put together before their use, at each of these.
//
// Rows that are sent to experts are quantised before (Precision::dispatches_codes) or after, which changes no bit.
//
// A layout must not change rounding, but for weight gradients of experts (docs/precision.md). Greatest magnitudes that several ranks share are gathered and reduced; a cut inside
// blocks throws ConfigError, which names the tensor and what would fit. `sequence_length`: of the rows of activations.
void precision_pass(graph::Graph& graph, const Precision& precision, int64_t sequence_length,
                    const Words& words);

}  // namespace strata::program
