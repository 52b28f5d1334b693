// Functions of gates and their slopes in vector arithmetic, for gate.cpp and gated_norm.cpp.
#if defined(STRATA_KERNELS_CPU_GATE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_GATE_MATH_INL_H_
#undef STRATA_KERNELS_CPU_GATE_MATH_INL_H_
#else
#define STRATA_KERNELS_CPU_GATE_MATH_INL_H_
#endif

#include "kernels/cpu/activations-inl.h"
#include "tensor/gate_kind.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

struct IdentityGate {
  static HWY_INLINE Vector value(Vector x) { return x; }
  static HWY_INLINE ValueAndSlope both(Vector x) { return {x, constant(1.0f)}; }
};

struct SigmoidGate {
  static HWY_INLINE Vector value(Vector x) { return logistic_times(constant(1.0f), clamped(x, Silu::kEdge)); }
  static HWY_INLINE ValueAndSlope both(Vector x) {
    const Logistic at = logistic(clamped(x, Silu::kEdge));
    return {at.s, hn::Mul(at.s, at.complement)};
  }
};

// Calls body(f) with the function of a kind.
template <typename Body>
HWY_INLINE void with_gate(GateKind kind, const Body& body) {
  switch (kind) {
    case GateKind::kIdentity:
      return body(IdentityGate());
    case GateKind::kSigmoid:
      return body(SigmoidGate());
    case GateKind::kSilu:
      return body(Silu());
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
