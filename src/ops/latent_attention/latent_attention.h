// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2"): keys and values of all heads come from one
// latent vector a token, and all heads share the rotated part of a key.
#pragma once

#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

struct SplitLatentsAttrs {
  std::vector<int64_t> parts;  // widths of query?, key and value, rotated
  bool operator==(const SplitLatentsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    for (const int64_t part : parts) to("part", part);
  }
};

// Rows in their parts, each a value.
struct SplitLatents {
  template <template <typename> class Of>
  struct In {
    Of<Act> down;  // [N, query? | key and value | rotated]
    static constexpr std::string_view names = "down";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Optional<Act>> query = {};
    Of<Act> latent;  // of keys and values
    Of<Act> rotated;
    static constexpr std::string_view names = "query latent rotated";
  };
  using Attrs = SplitLatentsAttrs;
  static const graph::OpDef def;
};
struct JoinLatents {
  template <template <typename> class Of>
  using In = SplitLatents::Out<Of>;
  template <template <typename> class Of>
  using Out = SplitLatents::In<Of>;
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// A query and a key of a head are [plain | rotated]. The last two are the cached form's.
struct LatentAttrs {
  int64_t plain_dim = 0, rotary_dim = 0, value_dim = 0;
  int64_t sequence_length = 0;  // of the queries
  double scale = 1;             // of the dot products of queries and keys
  int64_t head_dim() const { return plain_dim + rotary_dim; }
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

// qkv as attention reads it.
struct LatentHeads {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;        // [N, heads · (plain + rotary)]
    Of<Act> kv;       // [N, plain keys | values]
    Of<Act> rotated;  // [N, rotary], the part of their keys that all heads share
    static constexpr std::string_view names = "q kv rotated";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> qkv;  // [N, q | k | v]
    static constexpr std::string_view names = "qkv";
  };
  using Attrs = LatentAttrs;
  static const graph::OpDef def;
};
struct LatentHeadsGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dqkv;
    static constexpr std::string_view names = "dqkv";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dq, dkv;
    Of<Act> drotated;  // the sum over heads
    static constexpr std::string_view names = "dq dkv drotated";
  };
  using Attrs = LatentAttrs;
  static const graph::OpDef def;
};

// Only keys and values, of other rows than the queries': of whole sequences, or of those that come by
// (ops/context_attention). If ranks of an axis hold terms of their gradient, they also hold terms of its parts.
struct LatentKeys {
  template <template <typename> class Of>
  struct In {
    Of<Act> kv;       // [M, plain keys | values]
    Of<Act> rotated;  // [M, rotary]
    static constexpr std::string_view names = "kv rotated";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> keys_values;  // [M, k | v]
    static constexpr std::string_view names = "keys_values";
  };
  using Attrs = LatentAttrs;
  static const graph::OpDef def;
};
struct LatentKeysGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dkeys_values;
    static constexpr std::string_view names = "dkeys_values";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dkv;
    Of<Act> drotated;  // the sum over heads
    static constexpr std::string_view names = "dkv drotated";
  };
  using Attrs = LatentAttrs;
  static const graph::OpDef def;
};

// Attention to a cache of latent and rotated at each position, in the "absorbed" form: the weight, which
// makes keys and values of latents, multiplies queries and what heads have mixed of latents instead, so that
// a step reads the cache unchanged. Position and slot are those of CachedAttention.
struct CachedLatentAttention {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;               // [N, heads · (plain + rotary)], rotated
    Of<Act> latent;          // [N, rank]
    Of<Act> rotated;         // [N, rotary]
    Of<F32> weight;          // [plain keys | values, rank]
    Of<Act> cache;           // [entries, capacity, rank + rotary]
    Of<I32> position, slot;  // [sequences], role step
    // [N, count]: rows of its entry that a row attends to, ascending, then -1; absent: all up to its own.
    Of<Optional<I32>> chosen = {};
    static constexpr std::string_view names = "q latent rotated weight cache position slot chosen";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> out;    // [N, heads · value]
    Of<Act> cache;  // in place
    static constexpr std::string_view names = "out cache";
  };
  using Attrs = LatentAttrs;
  static const graph::OpDef def;
};

struct Latents {
  graph::ValueId query, key_value, rotated;  // query: kNone if absent
};
Latents split_latents(graph::Graph& graph, graph::ValueId down);

struct LatentCache {
  graph::ValueId latents, position, slot;
};
graph::ValueId cached_latent_attention(graph::Graph& graph, graph::ValueId q, const Latents& latents,
                                       graph::ValueId weight, const LatentCache& cache,
                                       const LatentAttrs& attrs, graph::ValueId chosen = graph::kNone);

}  // namespace strata::ops
