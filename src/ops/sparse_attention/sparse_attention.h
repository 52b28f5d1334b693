// Sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): an indexer, a small scorer of keys, chooses the keys
// that each row attends to.
//
//   I[t, s] = scale · Σ_h w[t, h] · relu(q[t, h] · k[s])       for the keys s that row t sees
//   chosen[t] = the `count` keys with the greatest I[t, s], of equals the first; all keys if they are fewer
//   out[t] = attention of row t to chosen[t]
//
// The indexer is trained by its own loss, the distance of softmax(I) from the main attention:
//
//   p[t, s] = Σ_heads softmax(main scores)[t, s] / Σ_s of it
//   loss = coefficient · Σ_t KL(p[t] ‖ softmax(I[t])),   over all rows with a target
//
// over all keys that a row sees (the warm-up, with dense attention) or over the chosen ones. No gradient passes
// to the main attention, and none through the choice.
//
// A row sees the keys from kv_begin to its own place. Places are those of the whole sequence. On the context axis
// rows are a rank's two chunks of each sequence (ops/context_attention) and keys are those of whole sequences;
// `rank` has the places of rows. No value here has sequence_length · kv_length elements, nor does scratch.
#pragma once

#include "ops/attention/attention.h"
#include "ops/signatures.h"

namespace strata::ops {

struct IndexerAttrs {
  int64_t sequence_length = 0;               // rows of a sequence that the operands have
  int64_t kv_length = 0;                     // keys of a sequence
  int64_t count = 0;                         // of keys that are chosen
  double scale = 1;                          // of I
  graph::Axis axis = graph::Axis::kContext;  // whose ranks share the rows, with `rank`
  int64_t ranks = 1;                         // of the axis, on a rank; 1 before localize()
  bool operator==(const IndexerAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// The indexer's operands: size D of a head, H heads.
struct SelectKeys {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;                        // [N, H · D]
    Of<Act> k;                        // [M, D], one for all heads
    Of<F32> weights;                  // [N, H]
    Of<Optional<I32>> kv_begin = {};  // [N]
    Of<Optional<I32>> rank = {};      // per-rank constants, if ranks may share the rows
    static constexpr std::string_view names = "q k weights kv_begin rank";
  };
  template <template <typename> class Of>
  struct Out {
    // [N, count], places in the row's sequence, ascending, then -1. kv_length below count: [N, count] all the same.
    Of<I32> chosen;
    static constexpr std::string_view names = "chosen";
  };
  using Attrs = IndexerAttrs;
  static const graph::OpDef def;
};

struct SparseAttentionAttrs {
  int64_t head_dim = 0;
  int64_t value_dim = 0;        // of a head's values; 0: head_dim
  int64_t sequence_length = 0;  // rows of a sequence that the operands have
  int64_t kv_length = 0;
  double scale = 1;
  bool mass = false;  // whether to return it
  int64_t size_of_value() const { return value_dim > 0 ? value_dim : head_dim; }
  bool operator==(const SparseAttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

struct SparseAttention {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;       // [N, heads · head_dim]
    Of<Act> kv;      // [M, k | v] of whole heads, as many as or a divisor of the query heads
    Of<I32> chosen;  // [N, count]
    static constexpr std::string_view names = "q kv chosen";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> out;  // [N, heads · value size]
    Of<F32> lse;  // [sequences, heads, sequence_length]
    Of<Optional<F32>> mass =
        {};  // [N, count], probabilities summed over heads (a partial sum where ranks share
             // heads); 0 for entries of -1. No gradient
    static constexpr std::string_view names = "out lse mass";
  };
  using Attrs = SparseAttentionAttrs;
  static const graph::OpDef def;
};
struct SparseAttentionGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, out;
    Of<F32> lse;
    Of<Act> q, kv;
    Of<I32> chosen;
    static constexpr std::string_view names = "dout out lse q kv chosen";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dq, dkv;  // dkv: a partial sum where ranks share rows
    static constexpr std::string_view names = "dq dkv";
  };
  using Attrs = SparseAttentionAttrs;
  static const graph::OpDef def;
};

struct IndexerLossAttrs {
  IndexerAttrs indexer;
  double coefficient = 1;
  // Of the main attention; without chosen keys only.
  int64_t head_dim = 0;
  double main_scale = 1;
  bool operator==(const IndexerLossAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// Over the chosen keys (`chosen` and `mass`), or over all keys (`main_q`, `main_kv` and `main_lse`).
struct IndexerLoss {
  template <template <typename> class Of>
  struct In {
    Of<Act> q, k;                     // as SelectKeys
    Of<F32> weights;                  // as SelectKeys
    Of<I32> targets;                  // [N]; negative: none
    Of<Optional<I32>> chosen = {};    // [N, count]
    Of<Optional<F32>> mass = {};      // [N, count], whole sums over heads
    Of<Optional<Act>> main_q = {};    // [N, all heads · head_dim]
    Of<Optional<Act>> main_kv = {};   // [M, k | v] of all heads; only k is read
    Of<Optional<F32>> main_lse = {};  // [sequences, all heads, sequence_length]
    Of<Optional<I32>> kv_begin = {};  // [N]
    Of<Optional<I32>> rank = {};
    static constexpr std::string_view names =
        "q k weights targets chosen mass main_q main_kv main_lse kv_begin rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;  // [1], an accumulator
    static constexpr std::string_view names = "sum";
  };
  using Attrs = IndexerLossAttrs;
  static const graph::OpDef def;
};
struct IndexerLossGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> q, k;
    Of<F32> weights;
    Of<I32> targets;
    Of<Optional<I32>> chosen = {};
    Of<Optional<F32>> mass = {};
    Of<Optional<Act>> main_q = {};
    Of<Optional<Act>> main_kv = {};
    Of<Optional<F32>> main_lse = {};
    Of<Optional<I32>> kv_begin = {};
    Of<Optional<I32>> rank = {};
    Of<Optional<F32>> seed = {};  // [1]; absent: 1
    static constexpr std::string_view names =
        "q k weights targets chosen mass main_q main_kv main_lse kv_begin rank seed";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dq, dk;  // dk: a partial sum where ranks share rows
    Of<F32> dweights;
    static constexpr std::string_view names = "dq dk dweights";
  };
  using Attrs = IndexerLossAttrs;
  static const graph::OpDef def;
};

// SelectKeys in generation: sequence s stores its new keys in entry slot[s] of the cache, from row position[s] on, and
// chooses among all rows there up to each row's own (ops/attention, CachedAttention).
struct CachedSelectKeys {
  template <template <typename> class Of>
  struct In {
    Of<Act> q, k;
    Of<F32> weights;
    Of<Act> cache;           // [entries, capacity, D]
    Of<I32> position, slot;  // [sequences], role step
    static constexpr std::string_view names = "q k weights cache position slot";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> chosen;  // [N, count], rows of the entry
    Of<Act> cache;   // in place
    static constexpr std::string_view names = "chosen cache";
  };
  using Attrs = IndexerAttrs;  // kv_length is not read
  static const graph::OpDef def;
};

struct IndexerOperands {
  graph::ValueId q, k, weights;
};
struct IndexerCache {
  graph::ValueId keys, position, slot;
};
// CachedSelectKeys; returns `chosen`.
graph::ValueId cached_select_keys(graph::Graph& graph, const IndexerOperands& operands,
                                  const IndexerCache& cache, const IndexerAttrs& attrs);

}  // namespace strata::ops
