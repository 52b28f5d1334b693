// Decays and step sizes of a linear recurrence, in fp32 from projections of the tokens.
#pragma once

#include <limits>

#include "ops/signatures.h"
#include "tensor/recurrence_kind.h"

namespace strata::ops {

struct RecurrenceGatesAttrs {
  RecurrenceKind kind = RecurrenceKind::kDelta;
  double beta_scale = 1;  // delta: the largest beta
  // State space: bounds of the step size; a step that they change passes no gradient.
  double least = 0, greatest = std::numeric_limits<double>::infinity();
  bool operator==(const RecurrenceGatesAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("kind", static_cast<int64_t>(kind));
    to("beta_scale", beta_scale);
    to("least", least);
    to("greatest", greatest);
  }
};

// Delta (Yang et al. 2024, arXiv 2412.06464; Kimi Team 2025, arXiv 2510.26692), D = heads or heads · K, a
// decay for each channel of a key:
//   g = −exp(a_log) · softplus(a + dt_bias),  beta = beta_scale · sigmoid(b)
// State space (Dao and Gu 2024, arXiv 2405.21060), D = heads:
//   beta = clamp(softplus(a + dt_bias), least, greatest),  g = −exp(a_log) · beta
struct RecurrenceGates {
  template <template <typename> class Of>
  struct In {
    Of<Act> a;                 // [N, D]
    Of<Optional<Act>> b = {};  // [N, heads], delta
    Of<F32> a_log;             // [heads]
    Of<F32> dt_bias;           // [D]
    static constexpr std::string_view names = "a b a_log dt_bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> g;     // [N, D], log of the decay: at most 0
    Of<F32> beta;  // [N, heads]
    static constexpr std::string_view names = "g beta";
  };
  using Attrs = RecurrenceGatesAttrs;
  static const graph::OpDef def;
};

struct RecurrenceGatesGradInput {
  template <template <typename> class Of>
  struct In {
    Of<F32> dg, dbeta;  // [N, D], [N, heads]
    Of<Act> a;
    Of<Optional<Act>> b = {};
    Of<F32> a_log, dt_bias;
    static constexpr std::string_view names = "dg dbeta a b a_log dt_bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> da;
    Of<Optional<Act>> db;  // with b
    static constexpr std::string_view names = "da db";
  };
  using Attrs = RecurrenceGatesAttrs;
  static const graph::OpDef def;
};

struct RecurrenceGatesGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<F32> dg;                    // [N, D]
    Of<Optional<F32>> dbeta = {};  // [N, heads], state space
    Of<Act> a;
    Of<F32> a_log, dt_bias;
    static constexpr std::string_view names = "dg dbeta a a_log dt_bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> da_log, ddt_bias;  // [heads], [D], accumulate
    static constexpr std::string_view names = "da_log ddt_bias";
  };
  using Attrs = RecurrenceGatesAttrs;
  static const graph::OpDef def;
};

struct RecurrenceGateValues {
  graph::ValueId g, beta;
};
// `b`: kNone for state space.
RecurrenceGateValues recurrence_gates(graph::Graph& graph, graph::ValueId a, graph::ValueId b,
                                      graph::ValueId a_log, graph::ValueId dt_bias,
                                      const RecurrenceGatesAttrs& attrs);

}  // namespace strata::ops
