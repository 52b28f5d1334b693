#include <algorithm>

#include "base/parallel.h"
#include "ops/expert_bias/expert_bias.h"
#include "ops/experts/slots.h"
#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::ExpertBias>& at) {
  const Array &x = at.in.x, &weights = at.in.weights, &bias = at.in.bias;
  const Slots slots(at.in.ids, at.in.offsets);
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
    at.out.y.put(i, sum);
  });
}

template <>
void compute(const Arrays<ops::ExpertBiasGrad>& at) {
  const Array &dy = at.in.dy, &weights = at.in.weights, &dbias = at.out.dbias;
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t columns = dy.shape[1];
  parallel_for(dbias.shape[0], [&](int64_t i) {
    double sum = 0;
    for (int64_t slot = 0; slot < std::ssize(slots.token_of); ++slot) {
      if (slots.expert(slot) != i / columns) continue;
      const int64_t row = weights.present() ? slots.token_of[static_cast<size_t>(slot)] : slot;
      sum += (weights.present() ? weights.at(slot) : 1) * dy.at(row * columns + i % columns);
    }
    dbias.give(i, sum);
  });
}

template <>
void compute(const Arrays<ops::ExpertBiasGradWeights>& at) {
  const Array &dy = at.in.dy, &bias = at.in.bias;
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t columns = dy.shape[1];
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    double sum = 0;
    const bool goes = slot < std::ssize(slots.token_of) && slots.expert(slot) >= 0;
    for (int64_t c = 0; goes && c < columns; ++c) {
      sum += dy.at(slots.token_of[static_cast<size_t>(slot)] * columns + c) *
             bias.at(slots.expert(slot) * columns + c);
    }
    at.out.dweights.put(slot, sum);
  });
}

}  // namespace strata::reference
