#include "ops/experts.h"

#include <algorithm>

#include "kernels/reference/call.h"
#include "kernels/reference/products.h"
#include "ops/expert_parallel.h"

namespace strata::reference {
namespace {

// Where the rows of a product lie: a row a token, or a row a slot.
struct Slots {
  // Of a product, whose offsets have one place in all of them.
  Slots(const Call& call, int operand)
      : Slots(call.in[static_cast<size_t>(operand)], call.in[ops::ExpertsIn::kOffsets]) {}
  explicit Slots(const Array& ids_of, Array offsets_of = {}) : ids(ids_of), offsets(std::move(offsets_of)) {
    for (int64_t token = 0; token < tokens(); ++token)
      token_of.insert(token_of.end(), static_cast<size_t>(begin(token + 1) - begin(token)), token);
  }
  int64_t tokens() const { return offsets.present() ? offsets.shape[0] - 1 : ids.shape[0]; }
  int64_t begin(int64_t token) const {
    return offsets.present() ? offsets.index_at(token) : token * ids.shape[1];
  }
  int64_t expert(int64_t slot) const { return ids.index_at(slot); }

  const Array& ids;
  const Array offsets;
  std::vector<int64_t> token_of;  // of the slots that tokens have
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

// A row's product with its expert's matrix, or (`transposed`) with that matrix the other way round, for one
// column of the result; 0 where no expert gets the row.
template <bool transposed>
double product(const Array& a, int64_t row, const Matrices& w, int64_t expert, int64_t column) {
  if (expert < 0) return 0;
  const int64_t depth = transposed ? w.outputs : w.inputs;
  double sum = 0;
  for (int64_t i = 0; i < depth; ++i)
    sum += a.at(row * depth + i) * (transposed ? w.at(expert, i, column) : w.at(expert, column, i));
  return sum;
}

// (a with a row a token, ids, w) → a row a slot: experts_in, and transposed the gradient of experts_out.
template <bool transposed>
void to_slots(const Call& call) {
  const Slots slots(call, 1);
  const Matrices w = matrices(call, call.in[2], call.in[0].dtype);
  const int64_t columns = transposed ? w.inputs : w.outputs;
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    const bool used = slot < std::ssize(slots.token_of);
    const int64_t token = used ? slots.token_of[static_cast<size_t>(slot)] : 0;
    for (int64_t c = 0; c < columns; ++c) {
      call.out[0].put(slot * columns + c,
                      used ? product<transposed>(call.in[0], token, w, slots.expert(slot), c) : 0);
    }
  });
}

// (a with a row a slot, ids, w) → a row a token: experts_out, and transposed the gradient of experts_in.
template <bool transposed>
void to_tokens(const Call& call) {
  const Slots slots(call, 1);
  const Matrices w = matrices(call, call.in[2], call.in[0].dtype);
  const int64_t columns = transposed ? w.inputs : w.outputs;
  parallel_for(slots.tokens(), [&](int64_t token) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t slot = slots.begin(token); slot < slots.begin(token + 1); ++slot)
        sum += product<transposed>(call.in[0], slot, w, slots.expert(slot), c);
      call.out[0].put(token * columns + c, sum);
    }
  });
}

// (dy, x, ids) → dw. `dy_by_slot`: dy has a row a slot and x a row a token, else the other way round.
template <bool dy_by_slot>
void experts_grad_weight(const Call& call) {
  const Array &dy = call.in[0], &x = call.in[1], &dw = call.out[0];
  const Slots slots(call, 2);
  const int64_t outputs = dy.shape[1], inputs = x.shape[1];
  parallel_for(call.attrs.as<ops::ExpertsAttrs>().experts, [&](int64_t expert) {
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
      dw.give(expert * outputs * inputs + i, sums[static_cast<size_t>(i)]);
  });
}

// (x, ids, weights?, b, offsets?) → y
void expert_bias(const Call& call) {
  const Array &x = call.in[0], &weights = call.in[2], &bias = call.in[3];
  const Slots slots(call.in[1], call.in[4]);
  const int64_t columns = x.shape[1], used = std::ssize(slots.token_of);
  parallel_for(x.shape.elements(), [&](int64_t i) {
    const int64_t row = i / columns;
    const int64_t first = weights.present() ? slots.begin(row) : std::min(row, used);
    const int64_t end = weights.present() ? slots.begin(row + 1) : std::min(row + 1, used);
    double sum = x.at(i);
    for (int64_t slot = first; slot < end; ++slot) {
      if (slots.expert(slot) < 0) continue;
      sum += (weights.present() ? weights.at(slot) : 1) * bias.at(slots.expert(slot) * columns + i % columns);
    }
    call.out[0].put(i, sum);
  });
}

// (dy, ids, weights?, offsets?) → db
void expert_bias_grad(const Call& call) {
  const Array &dy = call.in[0], &weights = call.in[2], &db = call.out[0];
  const Slots slots(call.in[1], call.in[3]);
  const int64_t columns = dy.shape[1];
  parallel_for(db.shape[0], [&](int64_t i) {
    double sum = 0;
    for (int64_t slot = 0; slot < std::ssize(slots.token_of); ++slot) {
      if (slots.expert(slot) != i / columns) continue;
      const int64_t row = weights.present() ? slots.token_of[static_cast<size_t>(slot)] : slot;
      sum += (weights.present() ? weights.at(slot) : 1) * dy.at(row * columns + i % columns);
    }
    db.give(i, sum);
  });
}

// (dy, ids, b, offsets?) → dweights
void expert_bias_grad_weights(const Call& call) {
  const Array &dy = call.in[0], &bias = call.in[2];
  const Slots slots(call.in[1], call.in[3]);
  const int64_t columns = dy.shape[1];
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    double sum = 0;
    const bool goes = slot < std::ssize(slots.token_of) && slots.expert(slot) >= 0;
    for (int64_t c = 0; goes && c < columns; ++c) {
      sum += dy.at(slots.token_of[static_cast<size_t>(slot)] * columns + c) *
             bias.at(slots.expert(slot) * columns + c);
    }
    call.out[0].put(slot, sum);
  });
}

// (ids, targets?) → counts
void expert_counts(const Call& call) {
  const Array &ids = call.in[0], &targets = call.in[1], &counts = call.out[0];
  std::vector<double> found(static_cast<size_t>(counts.shape[0]));
  for (int64_t slot = 0; slot < ids.shape.elements(); ++slot) {
    const bool counts_here = !targets.present() || targets.index_at(slot / ids.shape[1]) >= 0;
    if (counts_here && ids.index_at(slot) >= 0) ++found[static_cast<size_t>(ids.index_at(slot))];
  }
  for (int64_t e = 0; e < counts.shape[0]; ++e) counts.give(e, found[static_cast<size_t>(e)]);
}

// (ids, rank) → ids
void own_experts(const Call& call) {
  const auto& attrs = call.attrs.as<ops::OwnExpertsAttrs>();
  const graph::Coordinates& rank = graph::coordinates_in(call.in[1].data);
  for (int64_t i = 0; i < call.in[0].shape.elements(); ++i)
    call.out[0].put(i, attrs.own(static_cast<int32_t>(call.in[0].index_at(i)), rank));
}

// (end) → rounds
void expert_rounds(const Call& call) {
  double sum = 0;
  for (int64_t i = 1; i < call.in[0].shape[0]; i += 2) sum += static_cast<double>(call.in[0].index_at(i));
  call.out[0].give(0, sum);
}

// (counts) → now
void running_counts(const Call& call) {
  for (int64_t e = 0; e < call.in[0].shape[0]; ++e) call.out[0].put(e, call.in[0].at(e));
}

}  // namespace

std::span<const Row> experts_kernels() {
  static const Row kRows[] = {
      {&ops::kExpertsIn, to_slots<false>},
      {&ops::kExpertsInGradInput, to_tokens<true>},
      {&ops::kExpertsInGradWeight, experts_grad_weight<true>},
      {&ops::kExpertsOut, to_tokens<false>},
      {&ops::kExpertsOutGradInput, to_slots<true>},
      {&ops::kExpertsOutGradWeight, experts_grad_weight<false>},
      {&ops::kExpertBias, expert_bias},
      {&ops::kExpertBiasGrad, expert_bias_grad},
      {&ops::kExpertBiasGradWeights, expert_bias_grad_weights},
      {&ops::kExpertCounts, expert_counts},
      {&ops::kOwnExperts, own_experts},
      {&ops::kExpertRounds, expert_rounds},
      {&ops::kRunningCounts, running_counts},
  };
  return kRows;
}

}  // namespace strata::reference
