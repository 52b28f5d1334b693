// Muon (Jordan et al. 2024, KellerJordan/Muon): momentum made orthogonal by Newton and Schulz, each matrix (a
// segment of a fused parameter) by itself.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// With g = gradient · grad_scale and rate = lr · lr_scale:
//   m += (1 - momentum)(g - m);   x = nesterov ? g + momentum (m - g) : m
//   x /= ‖x‖ + 1e-7;   steps times: a = x xᵀ, x = 3.4445 x + (-4.7750 a + 2.0315 a²) x
//   p -= rate · weight_decay · p;   p -= rate · x
struct MuonUpdate : MomentumUpdate {
  static const graph::OpDef def;
};

// --- The same of parameters in shards: each matrix of a stack is made orthogonal by one rank.

struct MuonStackAttrs {
  struct Slot {
    int64_t operand = -1;  // index of the node's operand whose rows these are; -1: none
    UpdateAttrs update;
    bool operator==(const Slot&) const = default;
  };
  std::vector<Slot> slots;  // one a rank
  bool operator==(const MuonStackAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// The first two lines of the algorithm, and the input of the orthogonalization.
struct MuonMomentum {
  template <template <typename> class Of>
  struct In {
    Of<Many<F32>> momenta, gradients;
    Of<U8> scalars;
    static constexpr std::string_view names = "momenta gradients scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Many<F32>> momenta;
    // [matrices, rows, columns]; zeros for missing matrices, and everywhere when the step is skipped
    Of<F32> stack;
    static constexpr std::string_view names = "momenta stack";
  };
  using Attrs = MuonStackAttrs;
  static const graph::OpDef def;
};

struct NewtonSchulzAttrs {
  int64_t steps = 5;
  bool operator==(const NewtonSchulzAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("steps", steps); }
};
// Each matrix of a stack made orthogonal; zeros stay zeros.
struct NewtonSchulz {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;  // [matrices, rows, columns]
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> orthogonal;
    static constexpr std::string_view names = "orthogonal";
  };
  using Attrs = NewtonSchulzAttrs;
  static const graph::OpDef def;
};

// The last line.
struct MuonApply {
  template <template <typename> class Of>
  struct In {
    Of<Many<F32>> parameters;
    Of<F32> stack;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameters stack scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Many<F32>> parameters;
    static constexpr std::string_view names = "parameters";
  };
  using Attrs = MuonStackAttrs;
  static const graph::OpDef def;
};

enum class MuonScale : uint8_t {
  kOriginal,      // √max(1, rows / columns)
  kMatchRmsAdamW  // 0.2 √max(rows, columns): learning rates and decay of AdamW hold (Liu et al. 2025)
};
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5;
  MuonScale scale = MuonScale::kMatchRmsAdamW;  // one lr serves AdamW's tensors too
  double qk_clip = 0;  // of the run's attention, not of this update: see score_clip/score_clip.h; 0: off
  bool operator==(const Muon&) const = default;
  void describe(graph::AttributeText& to) const {
    to("momentum", momentum);
    to("nesterov", nesterov);
    to("steps", steps);
  }
  using Ops = OpList<MuonUpdate, MuonMomentum, NewtonSchulz, MuonApply>;
  static const Definition definition;
};

}  // namespace strata::optim
