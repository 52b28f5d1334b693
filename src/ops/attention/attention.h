// Attention of a sequence to itself, with or without a cache:
//   out = softmax(scale · q kᵀ + bias) v
// over the keys that each row sees. Optional sinks are a further score of each head that has no value
// (gpt-oss).
#pragma once

#include <string>

#include "ops/signatures.h"

namespace strata::ops {

// qkv = [q | k | v] of whole heads. value_dim: of a head of v; 0: head_dim.
void require_segments(const graph::NodeView& view, const graph::Value& qkv, int64_t head_dim,
                      int64_t value_dim = 0);

struct AttentionAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // of the queries
  double scale = 1;             // of the dot products of queries and keys
  int64_t window = 0;           // keys that a row sees, its own included; 0: all before it. Needs causal
  double softcap = 0;           // above 0: scores become softcap · tanh(score / softcap) (Gemma 2)
  bool causal = true;           // a row sees no key after its own
  int64_t bias_zero = 0;        // column of the bias for a key at the row's own place
  int64_t value_dim = 0;        // of a head's values; 0: head_dim
  // A row's window begins with the chunk of `window` keys that it is in. Only where keys are counted from 0:
  // of cached attention.
  bool chunked = false;
  // Above 0: Scored::greatest is found. Ranks that each find it for their rows, one row each; 1 after localize().
  int64_t greatest_parts = 0;
  int64_t size_of_value() const { return value_dim > 0 ? value_dim : head_dim; }
  bool operator==(const AttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("sequence_length", sequence_length);
    to("scale", scale);
    to("window", window);
    to("softcap", softcap);
    to("causal", causal);
    to("bias_zero", bias_zero);
    if (value_dim != 0) to("value_dim", value_dim);
    if (chunked) to("chunked", chunked);
    if (greatest_parts != 0) to("greatest_parts", greatest_parts);
  }
};

// Outputs of every kind of attention over sequences.
struct Attended {
  template <template <typename> class Of>
  struct Out {
    Of<Act> out;  // [N, heads · value size]
    Of<F32> lse;  // [sequences, heads, sequence_length]: log of the sum of exponentials of a row's scores
    static constexpr std::string_view names = "out lse";
  };
};

// The same, and the greatest score of each head, which an update scales queries and keys by
// (optim/score_clip/score_clip.h).
struct Scored {
  template <template <typename> class Of>
  struct Out {
    Of<Act> out;
    Of<F32> lse;
    // [greatest_parts, heads]: scale · q·k over all rows and the keys that they see, before bias, softcap and sink;
    // accumulates by taking the greater one
    Of<Optional<F32>> greatest = {};
    static constexpr std::string_view names = "out lse greatest";
  };
};

// Row i of a sequence sees the keys from kv_begin[i] (the document mask; absent: 0) to i, or, where not
// causal, to below kv_end[i] (absent: to the last).
struct Attention : Scored {
  template <template <typename> class Of>
  struct In {
    Of<Act> qkv;                      // [N, q | k | v]
    Of<Optional<I32>> kv_begin = {};  // [N]
    Of<Optional<I32>> kv_end = {};    // [N]; not causal
    // [heads, distances]: bias[h, bias_zero + j - i] is added to the scaled score of row i and key j. Not
    // with softcap.
    Of<Optional<F32>> bias = {};
    Of<Optional<F32>> sinks = {};  // [heads]
    static constexpr std::string_view names = "qkv kv_begin kv_end bias sinks";
  };
  using Attrs = AttentionAttrs;
  static const graph::OpDef def;
};

struct AttentionGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, out;
    Of<F32> lse;
    Of<Act> qkv;
    Of<Optional<I32>> kv_begin = {}, kv_end = {};
    Of<Optional<F32>> bias = {};
    static constexpr std::string_view names = "dout out lse qkv kv_begin kv_end bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dqkv;
    Of<Optional<F32>> dbias;  // with the bias
    static constexpr std::string_view names = "dqkv dbias";
  };
  using Attrs = AttentionAttrs;
  static const graph::OpDef def;
};

// Attention to a cache: sequence s stores its new keys and values in entry slot[s], from row position[s] on,
// and attends to all rows there up to each row's own. Always causal. No two sequences share an entry.
struct CachedAttention {
  template <template <typename> class Of>
  struct In {
    Of<Act> qkv;                   // [N, q | k | v]
    Of<Act> keys, values;          // [entries, capacity, kv heads · head_dim]
    Of<I32> position, slot;        // [sequences], role step
    Of<Optional<F32>> bias = {};   // as Attention
    Of<Optional<F32>> sinks = {};  // as Attention
    static constexpr std::string_view names = "qkv keys values position slot bias sinks";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> out;           // [N, q]
    Of<Act> keys, values;  // the caches, in place
    static constexpr std::string_view names = "out keys values";
  };
  using Attrs = AttentionAttrs;
  static const graph::OpDef def;
};

struct SinkGradAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // rows of a sequence, as lse has them
  bool operator==(const SinkGradAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("sequence_length", sequence_length);
  }
};

// The gradient of the sinks of every kind of attention over sequences.
struct SinkGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, out;  // [N, heads · head_dim]
    Of<F32> lse;        // [sequences, heads, sequence_length]
    Of<F32> sinks;      // [heads]
    static constexpr std::string_view names = "dout out lse sinks";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dsinks;  // [heads]; accumulates
    static constexpr std::string_view names = "dsinks";
  };
  using Attrs = SinkGradAttrs;
  static const graph::OpDef def;
};

// What attention returned for its rows, and the gradient of it.
struct AttendedRows {
  graph::ValueId dout, out, lse;
};
// Adds the gradient of the sinks, if there are any.
void add_sink_gradient(graph::GradientBuilder& builder, graph::ValueId sinks, const AttendedRows& rows,
                       const SinkGradAttrs& attrs);

// The greatest scores of the heads of a block: one accumulator of a step, which all nodes of the block's attention write.
struct GreatestScores {
  std::string name = {};
  graph::ValueId value = graph::kNone;  // f32[parts, heads]; made with the first node
};

// What all kinds of attention take besides their rows and kv_begin.
struct AttentionOptions {
  AttentionAttrs attrs;
  graph::ValueId kv_end = graph::kNone, bias = graph::kNone, sinks = graph::kNone;
  GreatestScores* greatest = nullptr;  // if these are wanted: of attention over sequences to their own keys
};
// Ranks that each find greatest scores, for different rows; 0 if they are not wanted. `q`: the queries, placed.
int64_t parts_of_greatest(const graph::Graph& graph, graph::ValueId q, const AttentionOptions& options);
// Makes `found`, an output of the newest node, the accumulator of the block, or has the node write the one that it is.
void keep_greatest(graph::Graph& graph, graph::ValueId found, GreatestScores* scores);
struct AttendedIds {
  graph::ValueId out, lse;
};
AttendedIds attended(graph::Graph& graph, graph::ValueId qkv, graph::ValueId kv_begin,
                     const AttentionOptions& options);
graph::ValueId attention(graph::Graph& graph, graph::ValueId qkv, graph::ValueId kv_begin,
                         const AttentionOptions& options);

struct CacheValues {
  graph::ValueId keys, values, position, slot;
};
graph::ValueId cached_attention(graph::Graph& graph, graph::ValueId qkv, const CacheValues& cache,
                                const AttentionOptions& options);

}  // namespace strata::ops
