// Activation functions and their slopes in vector arithmetic, for activation.cpp and gated.cpp.
#if defined(STRATA_KERNELS_CPU_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_ACTIVATIONS_INL_H_
#undef STRATA_KERNELS_CPU_ACTIVATIONS_INL_H_
#else
#define STRATA_KERNELS_CPU_ACTIVATIONS_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/vector_math-inl.h"
#include "tensor/activation_kind.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// f(x) and f'(x).
struct ValueAndSlope {
  Vector value, slope;
};

struct Silu {
  // Bounds the argument of the logistic so that its exponential stays a normal number.
  static constexpr float kEdge = 87.0f;
  static HWY_INLINE Vector value(Vector x) { return logistic_times(x, clamped(x, kEdge)); }
  // s + x s (1 - s).
  static HWY_INLINE ValueAndSlope both(Vector x) {
    const Vector near = clamped(x, kEdge);
    const Logistic at = logistic(near);
    return {hn::Mul(x, at.s), hn::MulAdd(hn::Mul(near, at.s), at.complement, at.s)};
  }
};

// (1 + tanh(u)) / 2 = logistic(2u), which has no cancellation for negative u.
struct GeluTanh {
  static constexpr float kScale = 1.59576912f;  // 2 sqrt(2 / pi)
  // Beyond this the logistic is 0 or 1 to the last bit, and exp(2u) would leave the range of floats.
  static constexpr float kEdge = 9.9f;
  static HWY_INLINE Vector argument(Vector x, Vector square) {
    return hn::Mul(x, hn::MulAdd(square, constant(kScale * 0.044715f), constant(kScale)));
  }
  static HWY_INLINE Vector value(Vector x) {
    const Vector above = hn::Max(constant(-kEdge), x);
    const Vector near = hn::Min(constant(kEdge), above);
    return logistic_times(above, argument(near, hn::Mul(near, near)));
  }
  static HWY_INLINE ValueAndSlope both(Vector x) {
    const Vector above = hn::Max(constant(-kEdge), x);
    const Vector near = hn::Min(constant(kEdge), above);
    const Vector square = hn::Mul(near, near);
    const Logistic l = logistic(argument(near, square));
    const Vector inner = hn::MulAdd(square, constant(3 * kScale * 0.044715f), constant(kScale));
    return {hn::Mul(above, l.s), hn::MulAdd(hn::Mul(near, inner), hn::Mul(l.s, l.complement), l.s)};
  }
};

struct GeluErf {
  static constexpr float kEdge = 13.0f;  // beyond this, Phi is 0 or 1
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(x, normal(x).cumulative); }
  static HWY_INLINE ValueAndSlope both(Vector x) {
    const Normal at = normal(x);
    const Vector near = hn::Max(constant(-kEdge), hn::Min(constant(kEdge), x));
    return {hn::Mul(x, at.cumulative), hn::MulAdd(near, at.density, at.cumulative)};
  }
};

// The operand order propagates NaN on x86. The slope at 0 is 0, as in PyTorch.
struct Relu {
  static HWY_INLINE Vector value(Vector x) { return hn::Max(zero(), x); }
  static HWY_INLINE ValueAndSlope both(Vector x) {
    const Vector one = hn::IfThenElseZero(hn::Gt(x, zero()), constant(1.0f));
    return {value(x), hn::IfThenElse(hn::IsNaN(x), x, one)};
  }
};

// Squared ReLU.
struct Relu2 {
  static HWY_INLINE Vector value(Vector x) {
    const Vector above = hn::Max(zero(), x);
    return hn::Mul(above, above);
  }
  static HWY_INLINE ValueAndSlope both(Vector x) {
    const Vector above = hn::Max(zero(), x);
    return {hn::Mul(above, above), hn::Add(above, above)};
  }
};

// Calls body(f) with the function of a kind.
template <typename Body>
HWY_INLINE void with_activation(ActivationKind kind, const Body& body) {
  switch (kind) {
    case ActivationKind::kSilu:
      return body(Silu());
    case ActivationKind::kGeluTanh:
      return body(GeluTanh());
    case ActivationKind::kGeluErf:
      return body(GeluErf());
    case ActivationKind::kRelu:
      return body(Relu());
    case ActivationKind::kRelu2:
      return body(Relu2());
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
