// Attention of one sequence to another, never causal, without window or bias, and the cache of an encoder's
// keys and values:
//   out = softmax(scale · q kᵀ) v
#pragma once

#include <optional>

#include "ops/attention/attention.h"

namespace strata::ops {

struct CrossAttentionAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // of the queries
  double scale = 1;
  double softcap = 0;
  int64_t encoder_length = 0;  // of the keys; 0: as long as the cache
  bool operator==(const CrossAttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("sequence_length", sequence_length);
    to("scale", scale);
    to("softcap", softcap);
    if (encoder_length != 0) to("encoder_length", encoder_length);
  }
};

// Row i sees the keys from kv_begin[i] to below kv_end[i] of its encoder's sequence (absent: all). A row with
// an empty range yields 0.
struct CrossAttention : Attended {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;                                     // [N, heads · head_dim]
    Of<Act> kv;                                    // [M, k | v], the same number of sequences
    Of<Optional<I32>> kv_begin = {}, kv_end = {};  // [N]
    static constexpr std::string_view names = "q kv kv_begin kv_end";
  };
  using Attrs = CrossAttentionAttrs;
  static const graph::OpDef def;
};

struct CrossAttentionGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, out;
    Of<F32> lse;
    Of<Act> q, kv;
    Of<Optional<I32>> kv_begin = {}, kv_end = {};
    static constexpr std::string_view names = "dout out lse q kv kv_begin kv_end";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dq, dkv;
    static constexpr std::string_view names = "dq dkv";
  };
  using Attrs = CrossAttentionAttrs;
  static const graph::OpDef def;
};

// Cross-attention against a cache: sequence s reads the keys and values below encoder_end[s] of slot[s].
struct CachedCrossAttention {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;                  // [N, heads · head_dim]
    Of<Act> keys, values;       // [entries, capacity, kv heads · head_dim]
    Of<I32> slot, encoder_end;  // [sequences], role step
    static constexpr std::string_view names = "q keys values slot encoder_end";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> out;  // as q
    static constexpr std::string_view names = "out";
  };
  using Attrs = CrossAttentionAttrs;
  static const graph::OpDef def;
};

// Stores the keys and values of whole sequences in the first rows of their cache entries.
struct StoreCross {
  template <template <typename> class Of>
  struct In {
    Of<Act> kv;            // [M, k | v]
    Of<Act> keys, values;  // [entries, capacity, k]
    Of<I32> slot;          // [sequences]
    static constexpr std::string_view names = "kv keys values slot";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> keys, values;  // the caches, in place
    static constexpr std::string_view names = "keys values";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct DocumentEndsAttrs {
  int64_t sequence_length = 0;
  int64_t encoder_length = 0;
  // The axis whose ranks share the rows, but not the keys, of a sequence.
  std::optional<graph::Axis> shared_on = {};
  bool operator==(const DocumentEndsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("sequence_length", sequence_length);
    to("encoder_length", encoder_length);
    if (shared_on) to("shared_on", name_of(*shared_on));
  }
};

// For each row the end of the range of keys j of its sequence with k_begin[j] == q_begin[i]; 0 if there is
// none. k_begin does not fall within a sequence. With it as kv_end a row sees its own document.
struct DocumentEnds {
  template <template <typename> class Of>
  struct In {
    Of<I32> q_begin, k_begin;  // [N], [M]
    static constexpr std::string_view names = "q_begin k_begin";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> ends;  // [N]
    static constexpr std::string_view names = "ends";
  };
  using Attrs = DocumentEndsAttrs;
  static const graph::OpDef def;
};

graph::ValueId cross_attention(graph::Graph& graph, graph::ValueId q, graph::ValueId kv,
                               graph::ValueId kv_begin, const AttentionOptions& options);
struct CrossCache {
  graph::ValueId keys, values, slot;
};
graph::ValueId cached_cross_attention(graph::Graph& graph, graph::ValueId q, const CrossCache& cache,
                                      graph::ValueId encoder_end, const AttentionOptions& options);
// Where ranks share the rows on the context axis k_begin may be whole there.
graph::ValueId document_ends(graph::Graph& graph, graph::ValueId q_begin, graph::ValueId k_begin,
                             int64_t sequences);

}  // namespace strata::ops
