// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2"): keys and values of all heads come from one
// latent vector a token, and all heads share the rotated part of a key.
#pragma once

#include <vector>

#include "ops/ops.h"

namespace strata::ops {

// Of a head: a query and a key are [plain | rotated], a value is as wide as it likes. Of the cached form too,
// which has the rest.
struct LatentAttrs {
  int64_t plain_dim = 0, rotary_dim = 0, value_dim = 0;
  int64_t sequence_length = 0;  // of the queries
  double scale = 1;             // of the products of queries and keys
  bool operator==(const LatentAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("plain_dim", plain_dim);
    to("rotary_dim", rotary_dim);
    to("value_dim", value_dim);
    if (sequence_length != 0) {
      to("sequence_length", sequence_length);
      to("scale", scale);
    }
  }
};
struct SplitLatentsAttrs {
  std::vector<int64_t> parts;  // widths of query?, key and value, rotated
  bool operator==(const SplitLatentsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    for (const int64_t part : parts) to("part", part);
  }
};
struct SplitLatents {
  enum In : int { kDown };
  enum Out : int { kQuery, kKeyValue, kRotated };
};
struct JoinLatents {
  enum In : int { kQuery, kKeyValue, kRotated };
  enum Out : int { kDown };
};
struct LatentHeads {
  enum In : int { kQ, kKv, kRotated };
  enum Out : int { kQkv };
};
struct LatentHeadsGrad {
  enum In : int { kDqkv };
  enum Out : int { kDq, kDkv, kDrotated };
};
struct CachedLatentAttention {
  enum In : int { kQ, kLatent, kRotated, kWeight, kCache, kPosition, kSlot };
  enum Out : int { kOut, kNewCache };
};

// down[N, query? | key and value | rotated] in its parts, each a value of its own.
struct Latents {
  ValueId query, key_value, rotated;  // query: kNone where down has none
};
Latents split_latents(Graph& graph, ValueId down);
extern const OpDef kSplitLatents;  // (down) → query?, key and value, rotated
extern const OpDef kJoinLatents;   // (query?, key and value, rotated) → down

// qkv[N, q | k | v] as attention reads it, of q[N, heads · (plain + rotary)], kv[N, plain keys | values] and
// the part of their keys that all heads share, rotated[N, rotary].
ValueId latent_heads(Graph& graph, ValueId q, ValueId kv, ValueId rotated, const LatentAttrs& attrs);
extern const OpDef kLatentHeads;      // (q, kv, rotated) → qkv
extern const OpDef kLatentHeadsGrad;  // (dqkv) → dq, dkv, drotated: the sum over heads

// Attention to a cache [slots, room, rank + rotary] of what latent[N, rank] and rotated[N, rotary] were at
// each position; position and slot are cached_attention's. weight [plain keys | values, rank] makes keys and
// values of latents: instead of theirs, queries are multiplied by it, and what heads have mixed of latents
// (the "absorbed" form), so that a step reads the cache as it is. q is rotated. Gives [N, heads · value].
struct LatentCache {
  ValueId latents, position, slot;
};
ValueId cached_latent_attention(Graph& graph, ValueId q, const Latents& latents, ValueId weight,
                                const LatentCache& cache, const LatentAttrs& attrs);
extern const OpDef kCachedLatentAttention;  // (q, latent, rotated, w, cache, position, slot) → out, cache

}  // namespace strata::ops
