// RMS norm of the q and k parts of [q | k | v]: of each head if the weights have a head's width (Qwen3), of
// the whole part if they have the part's (OLMo 2). v passes.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct QkNormAttrs {
  double eps = 1e-5;
  double weight_offset = 0;
  int64_t q_width = 0;  // of the weights, for the gradient that does not read them; 0: that of q
  int64_t k_width = 0;
  bool operator==(const QkNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("weight_offset", weight_offset);
    if (q_width != 0) to("q_width", q_width);
    if (k_width != 0) to("k_width", k_width);
  }
};

struct QkNorm {
  template <template <typename> class Of>
  struct In {
    Of<Act> qkv;                   // [N, q | k | v]
    Of<F32> q_weight, k_weight;    // [width of a group]
    Of<Optional<F32>> means = {};  // [N, 2] (QkMeans), where ranks share the heads of a whole part
    static constexpr std::string_view names = "qkv q_weight k_weight means";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;     // as qkv
    Of<F32> rstd;  // [N, groups of q | of k]
    static constexpr std::string_view names = "y rstd";
  };
  using Attrs = QkNormAttrs;
  static const graph::OpDef def;
};
// Where ranks share the heads of a whole part (placements of the weights) its mean square goes over them.
graph::ValueId qk_norm(graph::Graph& graph, graph::ValueId qkv, graph::ValueId q_weight,
                       graph::ValueId k_weight, double eps, double weight_offset = 0);

struct QkNormGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, qkv;               // [N, q | k | v]
    Of<F32> rstd;                  // [N, groups]
    Of<F32> q_weight, k_weight;    // [width of a group]
    Of<Optional<F32>> means = {};  // [N, 2], of qkv · dy · weight
    static constexpr std::string_view names = "dy qkv rstd q_weight k_weight means";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // as qkv
    static constexpr std::string_view names = "dx";
  };
  using Attrs = QkNormAttrs;
  static const graph::OpDef def;
};

struct QkNormGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, qkv;  // [N, q | k | v]
    Of<F32> rstd;     // [N, groups]
    static constexpr std::string_view names = "dy qkv rstd";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dq, dk;  // of the weights, accumulate
    static constexpr std::string_view names = "dq dk";
  };
  using Attrs = QkNormAttrs;
  static const graph::OpDef def;
};

// Means over all of q, and of k: of squares; with dy and the weights, which come together, of
// qkv · dy · weight. No gradient passes: qk_norm's covers what passes through means. Widths of the attributes
// are those of all ranks together.
struct QkMeans {
  template <template <typename> class Of>
  struct In {
    Of<Act> qkv;                                     // [N, q | k | v]
    Of<Optional<Act>> dy = {};                       // as qkv
    Of<Optional<F32>> q_weight = {}, k_weight = {};  // [width of q], [width of k]
    static constexpr std::string_view names = "qkv dy q_weight k_weight";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> means;  // [N, 2]
    static constexpr std::string_view names = "means";
  };
  using Attrs = QkNormAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
