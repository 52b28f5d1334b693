// Linear recurrences: a state S [K, V] a value head, which every token decays and writes to.
//
//   delta        S ← diag(e^g) S;  u = β (v − Sᵀk);  S ← S + k uᵀ;  o = Sᵀq
//                with a decay a head (Yang et al. 2024, "Gated delta networks") or a channel of the keys
//                (Kimi Team 2025, "Kimi Linear")
//   state_space  S ← e^g S + β k vᵀ;  o = Sᵀq + D v           (Dao and Gu 2024, "Transformers are SSMs")
//
// Value head n reads key head ⌊n · key heads / value heads⌋. The state is zero, or `before`, before each
// range of rows, and zero before a row with position 0: the begin of a document.
//
// On the context axis a rank holds ranges of sequences. A range changes the state before it linearly, S ←
// M S + N (RecurrenceMap), so ranks exchange maps and not tokens.
#pragma once

#include "ops/signatures.h"
#include "tensor/recurrence_kind.h"

namespace strata::ops {

// Delta: mixed = [q | k | v], key heads of q and k. State space: mixed = [v | k | q], which Mamba-2 calls
// [x | B | C], key heads are its groups, and β its dt.
struct RecurrenceAttrs {
  RecurrenceKind kind = RecurrenceKind::kDelta;
  int64_t key_dim = 0, value_dim = 0;  // K and V, of a head
  int64_t sequence_length = 0;         // rows of a sequence that the operands have
  int64_t pieces = 1;                  // equal ranges of a sequence; more than one on the context axis only
  bool l2_norm = false;                // q and k become x · rsqrt(Σ x² + 1e-6) a head
  double scale = 1;                    // of q, after that
  int64_t chunk = 64;                  // rows that are computed together; changes nothing but rounding
  bool operator==(const RecurrenceAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

struct Recurrence {
  template <template <typename> class Of>
  struct In {
    Of<Act> mixed;                  // [N, three segments]
    Of<F32> g;                      // ≤ 0; [N, value heads], or delta's [N, value heads · K]
    Of<F32> beta;                   // [N, value heads]
    Of<Optional<F32>> skip = {};    // D [value heads], of the state space
    Of<I32> positions;              // [N], of a row in its document
    Of<Optional<F32>> before = {};  // [sequences · pieces, value heads · K · V], the states before ranges
    Of<Optional<F32>> map = {};     // of all ranges on all ranks (RecurrenceMap), for the gradient
    static constexpr std::string_view names = "mixed g beta skip positions before map";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> o;  // [N, value heads · V]
    static constexpr std::string_view names = "o";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

struct RecurrenceGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, mixed;
    Of<F32> g, beta;
    Of<Optional<F32>> skip = {};
    Of<I32> positions;
    Of<Optional<F32>> before = {};
    Of<Optional<F32>> dlast = {};  // as before: the gradients of states after ranges; absent: 0
    static constexpr std::string_view names = "dout mixed g beta skip positions before dlast";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dmixed;
    Of<F32> dg, dbeta;
    Of<Optional<F32>> dbefore;  // with `before`
    static constexpr std::string_view names = "dmixed dg dbeta dbefore";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

struct RecurrenceSkipGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, mixed;
    static constexpr std::string_view names = "dout mixed";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dskip;  // [value heads], accumulates
    static constexpr std::string_view names = "dskip";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

// The change of the state by each range: S ← M S + N. No gradient passes: that of Recurrence
// covers the states of all ranks.
struct RecurrenceMap {
  template <template <typename> class Of>
  struct In {
    Of<Act> mixed;
    Of<F32> g, beta;
    Of<I32> positions;
    static constexpr std::string_view names = "mixed g beta positions";
  };
  template <template <typename> class Of>
  struct Out {
    // [sequences · pieces, value heads · (M | N)]: M is [K, K], and a number of the state space. 0 if a
    // document begins in the range.
    Of<F32> map;
    static constexpr std::string_view names = "map";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

// The gradient of the state before each range, as far as it comes from the range's outputs.
struct RecurrenceStateGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, mixed;
    Of<F32> g, beta;
    Of<I32> positions;
    static constexpr std::string_view names = "dout mixed g beta positions";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dbefore;  // [sequences · pieces, value heads · K · V]
    static constexpr std::string_view names = "dbefore";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

// The state before each range from the maps of all ranges, in the order of their sequences: 0, then M S + N
// of the range before.
struct ComposeMaps {
  template <template <typename> class Of>
  struct In {
    Of<F32> map;
    static constexpr std::string_view names = "map";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> before;  // [sequences · pieces, value heads · K · V]
    static constexpr std::string_view names = "before";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

// The gradient of the state after each range, from right to left: 0, then Mᵀ dlast + dbefore of the range
// after.
struct ComposeStateGrads {
  template <template <typename> class Of>
  struct In {
    Of<F32> map, dbefore;
    static constexpr std::string_view names = "map dbefore";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dlast;  // as dbefore
    static constexpr std::string_view names = "dlast";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

// Recurrence that goes on with the states in a cache. Sequence s has sequence_length rows, of which the first
// count[s] are new tokens, which follow position[s] tokens in the state of entry slot[s]; from position 0
// it starts at zero. Rows after the new tokens change no state, nor does a sequence without any; their
// outputs are 0. No two sequences share an entry.
struct CachedRecurrence {
  template <template <typename> class Of>
  struct In {
    Of<Act> mixed;
    Of<F32> g, beta;
    Of<Optional<F32>> skip = {};
    Of<F32> cache;                  // [entries, value heads · K · V], role cache
    Of<I32> position, slot, count;  // [sequences], role step
    static constexpr std::string_view names = "mixed g beta skip cache position slot count";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> o;
    Of<F32> cache;  // in place
    static constexpr std::string_view names = "o cache";
  };
  using Attrs = RecurrenceAttrs;
  static const graph::OpDef def;
};

// The outputs of a recurrence over the rows of whole sequences. Where ranks of the context axis share these,
// attrs.pieces is twice their number, and the states between ranges are exchanged.
struct RecurrenceOperands {
  graph::ValueId mixed, g, beta, positions;
  graph::ValueId skip = graph::kNone;
};
graph::ValueId recurrence(graph::Graph& graph, const RecurrenceOperands& operands,
                          const RecurrenceAttrs& attrs);

// CachedRecurrence; operands.positions is not read.
struct RecurrenceCache {
  graph::ValueId states, position, slot, count;
};
graph::ValueId cached_recurrence(graph::Graph& graph, const RecurrenceOperands& operands,
                                 const RecurrenceCache& cache, const RecurrenceAttrs& attrs);

}  // namespace strata::ops
