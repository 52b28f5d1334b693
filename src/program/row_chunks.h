// Collectives of the stream in parts, beside products (parallel.overlap_chunks).
#pragma once

#include <cstdint>

#include "program/program.h"
#include "program/row_views.h"

namespace strata::program {

// Of a localized graph in which the tensor axis shares the rows of the stream. Cuts rows into `chunks`
// parts, each of the same number of every rank's rows: of a forward gather and the product that reads it, of
// a forward product and the reduce-scatter of its terms, and of the gradient of a gathered input and its
// reduce-scatter. Of a gather the next part is under way while a part's product is computed, of a
// reduce-scatter the part before. A part has a product for each rank's rows, so that they lie as they did;
// weight gradients are computed from all rows at once. No bit changes. What is gathered in backward is left
// whole, since weight gradients read it; so is what full recompute makes again. ConfigError where the rows of
// a rank do not divide or a product would have too few.
void cut_rows_pass(graph::Graph& graph, RowViews& views, int64_t chunks, const Words& words);

}  // namespace strata::program
