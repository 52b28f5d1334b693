// Where the ranks of the context axis share the rows of each sequence: what crosses between them. All else
// in a model takes rows one by one and knows nothing of it.
#pragma once

#include "layers/layers.h"

namespace strata::layers {

// Whether sequences are shared here.
bool shares_sequences(const Context& context);
// Throws ConfigError if a sequence cannot be split into equal chunks for all ranks, or the rows of a
// micro-batch cannot be split equally over the ranks of the tensor axis that each hold a range.
void require_pieces(const Context& context);
// Returns `rows`, of sequences of `length`, with all sequences whole and in order, as every rank needs them;
// `rows` itself if they are not sharded.
ValueId whole_sequences(Context& context, ValueId rows, int64_t length);
// The rows of `whole` that a rank holds: the inverse of whole_sequences().
ValueId held_of_sequences(Context& context, ValueId whole, int64_t length);

// Attention of a rank's rows [N, q | k | v] to the keys of all ranks. `options`: as ops::attention has them,
// places of whole sequences. `name` is what errors call it.
ValueId shared_attention(Context& context, const std::string& name, ValueId qkv, ValueId kv_begin,
                         const ops::AttentionOptions& options);
// Like shared_attention(), of queries to an encoder's keys and values [M, k | v], whose rows are shared too.
ValueId shared_cross_attention(Context& context, const std::string& name, ValueId q, ValueId kv,
                               const ops::AttentionOptions& options);

}  // namespace strata::layers
