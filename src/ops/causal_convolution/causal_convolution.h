// Short causal convolution of each channel over the tokens of its document, with the ops that it needs if ranks
// share sequences and when texts are generated.
//
// Rows are sequences, each in `pieces` equal pieces, all consecutive: 1, or, where the ranks of the context
// axis share sequences, the pieces that they have together (two a rank: graph::Cut::sequence). A piece reads
// the rows before it from the operand `before`.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct CausalConvolutionAttrs {
  int64_t sequence_length = 0;  // rows of a sequence that the operand has
  int64_t pieces = 1;           // of a sequence
  bool silu = false;            // y = silu(z)
  bool operator==(const CausalConvolutionAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("sequence_length", sequence_length);
    to("pieces", pieces);
    to("silu", silu);
  }
};

// z[t, c] = bias[c] + Σ_d weight[c, w − 1 − d] · x[t − d, c], d from 0 to w − 1, over the rows t − d of t's
// document: positions[t] ≥ d. w is from 1 to 16.
struct CausalConvolution {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                    // [N, C]
    Of<F32> weight;               // [C, w]; the last is of the row itself
    Of<Optional<F32>> bias = {};  // [C]
    Of<I32> positions;            // [N]: tokens of the row's document before it
    Of<Optional<Act>> before =
        {};  // [sequences · pieces · (w − 1), C]: rows before each piece, oldest first;
             // absent: zeros
    static constexpr std::string_view names = "x weight bias positions before";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, C]
    static constexpr std::string_view names = "y";
  };
  using Attrs = CausalConvolutionAttrs;
  static const graph::OpDef def;
};

struct CausalConvolutionGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x;
    Of<F32> weight;
    Of<Optional<F32>> bias = {};
    Of<I32> positions;
    Of<Optional<Act>> before = {};
    static constexpr std::string_view names = "dy x weight bias positions before";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    Of<Optional<Act>> dbefore;  // with `before`
    static constexpr std::string_view names = "dx dbefore";
  };
  using Attrs = CausalConvolutionAttrs;
  static const graph::OpDef def;
};

struct CausalConvolutionGradWeight {
  template <template <typename> class Of>
  using In = CausalConvolutionGradInput::In<Of>;
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;               // [C, w]; accumulate
    Of<Optional<F32>> dbias;  // [C], with the bias
    static constexpr std::string_view names = "dw dbias";
  };
  using Attrs = CausalConvolutionAttrs;
  static const graph::OpDef def;
};

struct ConvolutionTailsAttrs {
  int64_t sequence_length = 0, pieces = 1;  // as CausalConvolutionAttrs
  int64_t taps = 1;                         // w
  bool operator==(const ConvolutionTailsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("sequence_length", sequence_length);
    to("pieces", pieces);
    to("taps", taps);
  }
};

// The last w − 1 rows of each piece, which the next piece reads. A piece has at least w − 1 rows.
struct ConvolutionTails {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;  // [N, C]
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> tails;  // [sequences · pieces · (w − 1), C]
    static constexpr std::string_view names = "tails";
  };
  using Attrs = ConvolutionTailsAttrs;
  static const graph::OpDef def;
};
// Zeros but for the last rows of each piece.
struct ConvolutionTailsGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dtails;
    static constexpr std::string_view names = "dtails";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    static constexpr std::string_view names = "dx";
  };
  using Attrs = ConvolutionTailsAttrs;
  static const graph::OpDef def;
};

struct ShiftPiecesAttrs {
  int64_t pieces = 1;  // of a sequence
  int64_t rows = 1;    // of a piece
  bool back = false;
  bool operator==(const ShiftPiecesAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("pieces", pieces);
    to("rows", rows);
    to("back", back);
  }
};

// Moves the rows of each piece of a sequence to the piece after it; the first piece gets zeros. back: to the
// piece before it; the last piece gets zeros. All pieces must be present, in order: on the context axis, whole.
struct ShiftPieces {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;  // [sequences · pieces · rows, C]
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> shifted;  // as x
    static constexpr std::string_view names = "shifted";
  };
  using Attrs = ShiftPiecesAttrs;
  static const graph::OpDef def;
};

struct ConvolutionParameters {
  graph::ValueId weight = graph::kNone, bias = graph::kNone;
};
// Where ranks of the context axis share the rows of x, the last rows of each piece pass to the rank with the
// next one: attrs.pieces is then two a rank.
graph::ValueId causal_convolution(graph::Graph& graph, graph::ValueId x,
                                  const ConvolutionParameters& parameters, graph::ValueId positions,
                                  const CausalConvolutionAttrs& attrs);

struct CachedConvolutionAttrs {
  bool silu = false;
  bool operator==(const CachedConvolutionAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("silu", silu); }
};

// CausalConvolution of texts in generation: sequence s has count[s] new tokens, the first of its rows, after
// position[s] earlier ones. Entry slot[s] of the cache has the last w − 1 inputs, oldest first; tokens before
// the first one are zeros. No two sequences share an entry.
struct CachedConvolution {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                      // [sequences · rows of each, C]
    Of<F32> weight;                 // [C, w]
    Of<Optional<F32>> bias = {};    // [C]
    Of<Act> cache;                  // [entries, w − 1, C]
    Of<I32> position, slot, count;  // [sequences], role step
    static constexpr std::string_view names = "x weight bias cache position slot count";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;      // as x; zeros after a sequence's tokens
    Of<Act> cache;  // in place
    static constexpr std::string_view names = "y cache";
  };
  using Attrs = CachedConvolutionAttrs;
  static const graph::OpDef def;
};

struct ConvolutionCache {
  graph::ValueId cache, position, slot, count;
};
graph::ValueId cached_convolution(graph::Graph& graph, graph::ValueId x,
                                  const ConvolutionParameters& parameters, const ConvolutionCache& cache,
                                  const CachedConvolutionAttrs& attrs);

}  // namespace strata::ops
