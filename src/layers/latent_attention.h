// Multi-head latent attention (ops/latent_attention/latent_attention.h) as a block of a model.
#pragma once

#include <optional>

#include "layers/indexer.h"
#include "layers/layers.h"

namespace strata::layers {

// Sizes of a block. A head's queries and keys are [plain | rotated].
struct LatentDims {
  int64_t query_rank = 0;  // of the queries' latent; 0: queries are projected from hidden states
  int64_t rank = 0;        // of the latent of keys and values
  int64_t plain_dim = 0, rotary_dim = 0, value_dim = 0;

  int64_t head_dim() const { return plain_dim + rotary_dim; }
};

struct LatentAttentionSpec {
  // Parameters NAME.down.* [query latent | latent | rotated], NAME.query_norm, NAME.latent_norm,
  // NAME.q.weight, NAME.kv.weight [plain keys | values] and NAME.out.*.
  std::string name = {};
  int64_t hidden_size = 0;
  int64_t heads = 0;
  LatentDims dims;
  bool bias = false;           // for projections from hidden states to latents and back
  double norm_eps = 1e-6;      // of the latents
  ValueId rope_table = kNone;  // kNone: nothing rotates, and all heads share that part of a key all the same
  bool adjacent_pairs = true;  // ops::RopeAttrs
  double scale = 1;            // of scores
  // Attends to the keys that an indexer chooses: its own, NAME.indexer.*, or, without one, that of the last layer before
  // that has one.
  std::optional<IndexerDims> indexer = {};
  bool has_own_indexer = true;
};
// Projections to latents, their norms, projections to heads, rotary embedding, attention, output projection.
// On the tensor axis ranks shard the heads, and each has all latents. In kCached mode the cache stores
// latents and rotated keys, nothing per head.
ValueId latent_attention(Context& context, const LatentAttentionSpec& spec, ValueId x);

}  // namespace strata::layers
