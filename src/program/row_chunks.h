// Splits collectives of the residual stream so that they overlap matmuls (parallel.overlap_chunks).
#pragma once

#include <cstdint>

#include "program/program.h"
#include "program/row_views.h"

namespace strata::program {

// Works on a localized graph in which the tensor axis shards the rows of the residual stream. Splits rows
// into `chunks` parts, each with the same number of every rank's rows, for
// - a forward gather and the matmul that reads it,
// - a forward matmul and the reduce-scatter of its terms,
// - the gradient of a gathered input and its reduce-scatter.
// A gather of the next part is in flight while a part's matmul is computed; so is a reduce-scatter of the
// previous part. A part has a separate matmul for each rank's rows, which keeps them in place; weight
// gradients are computed from all rows together. No bit changes. Gathers in backward stay whole, since weight
// gradients read them; so does everything that full recompute makes again. Throws ConfigError if `chunks`
// does not divide a rank's rows or a matmul would have too few.
void cut_rows_pass(graph::Graph& graph, RowViews& views, int64_t chunks, const Words& words);

}  // namespace strata::program
