#include "ops/experts.h"

#include "kernels/reference/call.h"
#include "kernels/reference/products.h"

namespace strata::reference {
namespace {

// Where the rows of a product lie: a row a token, or a row a slot.
struct Slots {
  const Array& ids;
  int64_t k = ids.shape[1];

  int64_t tokens() const { return ids.shape[0]; }
  int64_t expert(int64_t slot) const { return ids.index_at(slot); }
};

// Element (o, i) of an expert's matrix as it takes part beside activations of this dtype.
struct Matrices {
  const Array& w;
  int64_t outputs, inputs;
  DType dtype;

  double at(int64_t expert, int64_t o, int64_t i) const {
    return rounded(w.at((expert * outputs + o) * inputs + i), dtype);
  }
};

Matrices matrices(const Call& call, const Array& w, DType dtype) {
  return {w, w.shape[0] / call.attrs.as<ops::ExpertsAttrs>().experts, w.shape[1], dtype};
}

// (x, ids, w) → y
void experts_in(const Call& call) {
  const Array &x = call.in[0], &y = call.out[0];
  const Slots slots{call.in[1]};
  const Matrices w = matrices(call, call.in[2], x.dtype);
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    for (int64_t o = 0; o < w.outputs; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < w.inputs; ++i)
        sum += x.at(slot / slots.k * w.inputs + i) * w.at(slots.expert(slot), o, i);
      y.put(slot * w.outputs + o, sum);
    }
  });
}

// (dy, ids, w) → dx
void experts_in_grad_input(const Call& call) {
  const Array &dy = call.in[0], &dx = call.out[0];
  const Slots slots{call.in[1]};
  const Matrices w = matrices(call, call.in[2], dy.dtype);
  parallel_for(slots.tokens(), [&](int64_t token) {
    for (int64_t i = 0; i < w.inputs; ++i) {
      double sum = 0;
      for (int64_t slot = token * slots.k; slot < (token + 1) * slots.k; ++slot) {
        for (int64_t o = 0; o < w.outputs; ++o)
          sum += dy.at(slot * w.outputs + o) * w.at(slots.expert(slot), o, i);
      }
      dx.put(token * w.inputs + i, sum);
    }
  });
}

// (h, ids, w) → y
void experts_out(const Call& call) {
  const Array &h = call.in[0], &y = call.out[0];
  const Slots slots{call.in[1]};
  const Matrices w = matrices(call, call.in[2], h.dtype);
  parallel_for(slots.tokens(), [&](int64_t token) {
    for (int64_t o = 0; o < w.outputs; ++o) {
      double sum = 0;
      for (int64_t slot = token * slots.k; slot < (token + 1) * slots.k; ++slot) {
        for (int64_t i = 0; i < w.inputs; ++i)
          sum += h.at(slot * w.inputs + i) * w.at(slots.expert(slot), o, i);
      }
      y.put(token * w.outputs + o, sum);
    }
  });
}

// (dy, ids, w) → dh
void experts_out_grad_input(const Call& call) {
  const Array &dy = call.in[0], &dh = call.out[0];
  const Slots slots{call.in[1]};
  const Matrices w = matrices(call, call.in[2], dy.dtype);
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    for (int64_t i = 0; i < w.inputs; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < w.outputs; ++o)
        sum += dy.at(slot / slots.k * w.outputs + o) * w.at(slots.expert(slot), o, i);
      dh.put(slot * w.inputs + i, sum);
    }
  });
}

// (dy, x, ids) → dw. `dy_by_slot`: dy has a row a slot and x a row a token, else the other way round.
template <bool dy_by_slot>
void experts_grad_weight(const Call& call) {
  const Array &dy = call.in[0], &x = call.in[1], &dw = call.out[0];
  const Slots slots{call.in[2]};
  const int64_t outputs = dy.shape[1], inputs = x.shape[1];
  parallel_for(call.attrs.as<ops::ExpertsAttrs>().experts, [&](int64_t expert) {
    std::vector<double> sums(static_cast<size_t>(outputs * inputs));
    for (int64_t slot = 0; slot < slots.ids.shape.elements(); ++slot) {
      if (slots.expert(slot) != expert) continue;
      const int64_t dy_row = dy_by_slot ? slot : slot / slots.k, x_row = dy_by_slot ? slot / slots.k : slot;
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < inputs; ++i)
          sums[static_cast<size_t>(o * inputs + i)] += dy.at(dy_row * outputs + o) * x.at(x_row * inputs + i);
      }
    }
    for (int64_t i = 0; i < outputs * inputs; ++i)
      dw.give(expert * outputs * inputs + i, sums[static_cast<size_t>(i)]);
  });
}

// (ids) → counts
void expert_counts(const Call& call) {
  const Array &ids = call.in[0], &counts = call.out[0];
  std::vector<double> found(static_cast<size_t>(counts.shape[0]));
  for (int64_t slot = 0; slot < ids.shape.elements(); ++slot)
    ++found[static_cast<size_t>(ids.index_at(slot))];
  for (int64_t e = 0; e < counts.shape[0]; ++e) counts.give(e, found[static_cast<size_t>(e)]);
}

}  // namespace

std::span<const Row> experts_kernels() {
  static const Row kRows[] = {
      {&ops::kExpertsIn, experts_in},
      {&ops::kExpertsInGradInput, experts_in_grad_input},
      {&ops::kExpertsInGradWeight, experts_grad_weight<true>},
      {&ops::kExpertsOut, experts_out},
      {&ops::kExpertsOutGradInput, experts_out_grad_input},
      {&ops::kExpertsOutGradWeight, experts_grad_weight<false>},
      {&ops::kExpertCounts, expert_counts},
  };
  return kRows;
}

}  // namespace strata::reference
