// The update of weights or moments that memory holds in fewer bits than fp32 (storage.h): the optimizer's own
// formula in fp32, on widened values that are rounded afterwards.
#pragma once

#include "optim/definition.h"

namespace strata::optim {

// In place, for the node's rows. With rounding kKahan the weight is the sum of parameter and compensation. A moment in
// e4m3 is code · scale; the scale of a block is its largest magnitude, at least 1e-12, over 448 (torchao's
// quantize_fp8). The rule is UpdateAttrs::rule, with its storage.
struct StoredUpdate {
  template <template <typename> class Of>
  struct In {
    Of<Any> parameter;     // fp32 or bf16
    Of<Many<Any>> states;  // stored_states(), in their order
    Of<F32> gradient;
    Of<U8> scalars;
    Of<Optional<I32>> rank = {};  // [axes], with stochastic rounding
    static constexpr std::string_view names = "parameter states gradient scalars rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Any> parameter;
    Of<Many<Any>> states;
    static constexpr std::string_view names = "parameter states";
  };
  using Attrs = UpdateAttrs;
  static const graph::OpDef def;
};

// --- A rule with its storage, in the terms of a Definition

// The states of `rows`: the optimizer's own, with moments as they are stored ("m" and "m_scale" in e4m3), and the
// compensation.
std::vector<StateSpec> stored_states(const UpdateRule& rule, const Shape& rows);
const graph::OpDef& stored_op(const UpdateRule& rule, const Shape& rows);
// kTensor if a state has blocks.
Definition::Unit stored_unit(const UpdateRule& rule);
int64_t stored_alignment(const UpdateRule& rule, const Shape& rows);

}  // namespace strata::optim
