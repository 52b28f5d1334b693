#include "ops/reference.h"
#include "kernels/reference/products.h"
#include "ops/experts/experts.h"
#include "ops/experts/slots.h"

namespace strata::reference {
namespace {

// Element (o, i) of an expert's matrix as multiplied by activations of this dtype.
struct Matrices {
  template <typename Op>
  Matrices(const Arrays<Op>& at, DType activations)
      : w(at.in.weight), outputs(w.shape[0] / at.attrs.experts), inputs(w.shape[1]), dtype(activations) {}

  double at(int64_t expert, int64_t o, int64_t i) const {
    return rounded(w.at((expert * outputs + o) * inputs + i), dtype);
  }

  const Array& w;
  int64_t outputs, inputs;
  DType dtype;
};

// A row's dot product with its expert's matrix, or (`transposed`) with its transpose, for one column of the
// result; 0 if no expert gets the row.
template <bool transposed>
double expert_product(const Array& a, int64_t row, const Matrices& w, int64_t expert, int64_t column) {
  if (expert < 0) return 0;
  const int64_t depth = transposed ? w.outputs : w.inputs;
  double sum = 0;
  for (int64_t i = 0; i < depth; ++i)
    sum += a.at(row * depth + i) * (transposed ? w.at(expert, i, column) : w.at(expert, column, i));
  return sum;
}

// From rows of tokens to rows of pairs: experts_in, and transposed the gradient of experts_out.
template <bool transposed, typename Op>
void to_slots(const Arrays<Op>& at, const Array& a, const Array& out) {
  const Slots slots(at.in.ids, at.in.offsets);
  const Matrices w(at, a.dtype);
  const int64_t columns = transposed ? w.inputs : w.outputs;
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    const bool used = slot < std::ssize(slots.token_of);
    const int64_t token = used ? slots.token_of[static_cast<size_t>(slot)] : 0;
    for (int64_t c = 0; c < columns; ++c) {
      out.put(slot * columns + c, used ? expert_product<transposed>(a, token, w, slots.expert(slot), c) : 0);
    }
  });
}

// From rows of pairs to rows of tokens: experts_out, and transposed the gradient of experts_in.
template <bool transposed, typename Op>
void to_tokens(const Arrays<Op>& at, const Array& a, const Array& out) {
  const Slots slots(at.in.ids, at.in.offsets);
  const Matrices w(at, a.dtype);
  const int64_t columns = transposed ? w.inputs : w.outputs;
  parallel_for(slots.tokens(), [&](int64_t token) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t slot = slots.begin(token); slot < slots.begin(token + 1); ++slot)
        sum += expert_product<transposed>(a, slot, w, slots.expert(slot), c);
      out.put(token * columns + c, sum);
    }
  });
}

// `dy_by_slot`: dy has one row per pair and x one per token; otherwise the other way round.
template <bool dy_by_slot, typename Op>
void experts_grad_weight(const Arrays<Op>& at) {
  const Array &dy = at.in.dy, &x = at.in.x;
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t outputs = dy.shape[1], inputs = x.shape[1];
  parallel_for(at.attrs.experts, [&](int64_t expert) {
    std::vector<double> sums(static_cast<size_t>(outputs * inputs));
    for (int64_t slot = 0; slot < std::ssize(slots.token_of); ++slot) {
      if (slots.expert(slot) != expert) continue;
      const int64_t token = slots.token_of[static_cast<size_t>(slot)];
      const int64_t dy_row = dy_by_slot ? slot : token, x_row = dy_by_slot ? token : slot;
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < inputs; ++i)
          sums[static_cast<size_t>(o * inputs + i)] += dy.at(dy_row * outputs + o) * x.at(x_row * inputs + i);
      }
    }
    for (int64_t i = 0; i < outputs * inputs; ++i)
      at.out.dw.give(expert * outputs * inputs + i, sums[static_cast<size_t>(i)]);
  });
}

}  // namespace

template <>
void compute(const Arrays<ops::ExpertsIn>& at) {
  to_slots<false>(at, at.in.x, at.out.y);
}
template <>
void compute(const Arrays<ops::ExpertsInGradInput>& at) {
  to_tokens<true>(at, at.in.dy, at.out.dx);
}
template <>
void compute(const Arrays<ops::ExpertsInGradWeight>& at) {
  experts_grad_weight<true>(at);
}
template <>
void compute(const Arrays<ops::ExpertsOut>& at) {
  to_tokens<false>(at, at.in.x, at.out.y);
}
template <>
void compute(const Arrays<ops::ExpertsOutGradInput>& at) {
  to_slots<true>(at, at.in.dy, at.out.dx);
}
template <>
void compute(const Arrays<ops::ExpertsOutGradWeight>& at) {
  experts_grad_weight<false>(at);
}

template <>
void compute(const Arrays<ops::ExpertCounts>& at) {
  const Array &ids = at.in.ids, &targets = at.in.targets, &counts = at.out.counts;
  std::vector<double> found(static_cast<size_t>(counts.shape[0]));
  for (int64_t slot = 0; slot < ids.shape.elements(); ++slot) {
    const bool counts_here = !targets.present() || targets.index_at(slot / ids.shape[1]) >= 0;
    if (counts_here && ids.index_at(slot) >= 0) ++found[static_cast<size_t>(ids.index_at(slot))];
  }
  for (int64_t e = 0; e < counts.shape[0]; ++e) counts.give(e, found[static_cast<size_t>(e)]);
}

template <>
void compute(const Arrays<ops::RunningCounts>& at) {
  for (int64_t e = 0; e < at.in.counts.shape[0]; ++e) at.out.now.put(e, at.in.counts.at(e));
}

}  // namespace strata::reference
