// The indexer of sparse attention (ops/sparse_attention), as a part of a block of latent attention.
#pragma once

#include "layers/layers.h"

namespace strata::layers {

// Sizes. All heads of its queries score the same keys.
struct IndexerDims {
  int64_t heads = 0, dim = 0;
  int64_t count = 0;            // of the keys that it chooses
  bool adjacent_pairs = false;  // ops::RopeAttrs, of the indexer

  bool operator==(const IndexerDims&) const = default;
};

struct IndexerSpec {
  // Parameters NAME.q.weight [heads · dim, query_rank], NAME.k.weight [dim, hidden_size], NAME.k_norm.*, NAME.weights.weight
  // [heads, hidden_size].
  std::string name = {};
  int64_t hidden_size = 0, query_rank = 0;
  IndexerDims dims;
  ValueId rope_table = kNone;  // of the first dimensions of queries and keys; kNone: nothing rotates
};

// What scores are computed from. On the tensor axis every rank has all of it.
struct Indexed {
  ValueId q, k, weights;  // ops::SelectKeys; k is of the same rows as q
};
// x: the block's input, rows of the residual stream. query_latent: [N, query_rank], all rows (gathered()). No gradient
// passes to either.
Indexed indexed(Context& context, const IndexerSpec& spec, ValueId x, ValueId query_latent);

// The keys that each row attends to, i32[N, count]: of sequences, or of the cache NAME.keys.
ValueId chosen_keys(Context& context, const IndexerSpec& spec, const Indexed& scores);

// The main attention, for the indexer's loss: over chosen keys, or over all.
struct MainAttention {
  ValueId chosen = kNone, mass = kNone;  // ops::SparseAttention
  // All keys: queries and keys, and the logarithms of the sums of exponentials (ops::Attention); on the tensor
  // axis a rank has those of its heads.
  ValueId q = kNone, kv = kNone, lse = kNone;
  int64_t head_dim = 0;
  double scale = 1;
};
void add_indexer_loss(Context& context, const IndexerSpec& spec, const Indexed& scores,
                      const MainAttention& attention);
// In a warm-up: measures the share of attention that the keys hold which the indexer would choose. `chosen_lse`:
// MainAttention::lse of these keys.
void add_indexer_share(Context& context, ValueId chosen_lse, const MainAttention& attention, int64_t heads);

}  // namespace strata::layers
