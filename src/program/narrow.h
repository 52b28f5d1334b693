// Parameters that memory holds in bf16, without a master in fp32 (optim/storage.h).
//
// Graphs are built as if all parameters were fp32. Here those that the optimizer's rules store in bf16 become bf16, as
// do the copies that ranks gather from their shards, so a gather sends half of the bytes. Updates, gathers and
// look-ups in an embedding take bf16; every other reader gets an fp32 copy that lives until it has run. A
// copy holds the same numbers, so what reads it (a matmul, the packing of a weight, a norm) is unaware.
#pragma once

#include "graph/graph.h"
#include "optim/optimizer.h"

namespace strata::program {

// What a parameter is stored as; fp32 without rules.
DType stored_dtype(const graph::Graph& graph, const graph::Parameter& parameter,
                   const optim::RuleOf& rule_of);

// Only the types of the values, where nothing of the graph runs.
void narrow_values(graph::Graph& graph, const optim::RuleOf& rule_of);

// For a graph with shapes of one rank, after kernels have been asked for packed layouts. With `gathers`, ranks also
// gather bf16 where all readers of a weight round it to bf16: each casts its shard after an update. Half of the bytes
// are sent, and no bit changes. Matmuls whose device wants a copy in bf16 read the gathered one (device/encode.h).
void narrow_pass(graph::Graph& graph, const optim::RuleOf& rule_of, bool gathers);

}  // namespace strata::program
