#include "ops/soft_experts/soft_experts.h"

#include "ops/reference.h"
#include "ops/router/scores.h"

namespace strata::reference {
namespace {

// Weights of one group, [rows, S]: softmaxes over its tokens, or over its S mixed inputs.
struct SoftWeights {
  int64_t rows, slots, first;  // first: token
  Numbers w;

  SoftWeights(const Array& logits, const ops::SoftExpertsAttrs& attrs, int64_t group, bool over_tokens)
      : rows(attrs.rows), slots(logits.shape[1]), first(group * rows), w(static_cast<size_t>(rows * slots)) {
    for (int64_t line = 0; line < (over_tokens ? slots : rows); ++line) {
      Numbers x;
      for (int64_t i = 0; i < (over_tokens ? rows : slots); ++i)
        x.push_back(logits.at((first + (over_tokens ? i : line)) * slots + (over_tokens ? line : i)));
      x = scores_of(x, ops::RouteAttrs::Score::kSoftmax);
      for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
        at(over_tokens ? i : line, over_tokens ? line : i) = x[static_cast<size_t>(i)];
    }
  }
  double& at(int64_t row, int64_t slot) { return w[static_cast<size_t>(row * slots + slot)]; }

  // The logits' gradient from that of the weights.
  Numbers through(Numbers d, bool over_tokens) {
    for (int64_t line = 0; line < (over_tokens ? slots : rows); ++line) {
      const auto place = [&](int64_t i) {
        return static_cast<size_t>(over_tokens ? i * slots + line : line * slots + i);
      };
      double mean = 0;
      for (int64_t i = 0; i < (over_tokens ? rows : slots); ++i) mean += d[place(i)] * w[place(i)];
      for (int64_t i = 0; i < (over_tokens ? rows : slots); ++i)
        d[place(i)] = w[place(i)] * (d[place(i)] - mean);
    }
    return d;
  }
};

// A group's rows of `to`, one per mixed input or per token, as sums of the others by its weights.
void soft_mix(SoftWeights& weights, bool to_slots, int64_t group, const Array& from, const Array& to) {
  const int64_t width = from.shape[1], made = to_slots ? weights.slots : weights.rows,
                read = to_slots ? weights.rows : weights.slots;
  for (int64_t row = 0; row < made; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < read; ++i) {
        sum += (to_slots ? weights.at(i, row) : weights.at(row, i)) * from.at((group * read + i) * width + c);
      }
      to.put((group * made + row) * width + c, sum);
    }
  }
}

// The gradient of a group's weights: dot products of the rows of its tokens and of its mixed inputs.
Numbers soft_dots(const SoftWeights& weights, int64_t group, const Array& of_tokens, const Array& of_slots) {
  const int64_t width = of_tokens.shape[1];
  Numbers d;
  for (int64_t row = 0; row < weights.rows; ++row) {
    for (int64_t slot = 0; slot < weights.slots; ++slot) {
      d.push_back(0);
      for (int64_t c = 0; c < width; ++c) {
        d.back() += of_tokens.at((weights.first + row) * width + c) *
                    of_slots.at((group * weights.slots + slot) * width + c);
      }
    }
  }
  return d;
}

// Calls take(weights, group) for each group.
template <typename Op, typename Take>
void for_soft_groups(const Arrays<Op>& at, bool over_tokens, const Take& take) {
  const Array& logits = at.in.logits;
  for (int64_t group = 0; group < logits.shape[0] / at.attrs.rows; ++group) {
    SoftWeights weights(logits, at.attrs, group, over_tokens);
    take(weights, group);
  }
}

}  // namespace

template <>
void compute(const Arrays<ops::SoftDispatch>& at) {
  for_soft_groups(at, true, [&](SoftWeights& weights, int64_t group) {
    const int64_t slots = weights.slots;
    soft_mix(weights, true, group, at.in.x, at.out.slots);
    const int64_t of_expert = slots / at.attrs.experts;
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int64_t expert = slot / of_expert;
      at.out.experts.put(group * slots + slot, static_cast<double>(expert));
      at.out.weights.put(group * slots + slot, 1);
    }
  });
}

template <>
void compute(const Arrays<ops::SoftDispatchGrad>& at) {
  for_soft_groups(at, true, [&](SoftWeights& weights, int64_t group) {
    soft_mix(weights, false, group, at.in.dslots, at.out.dx);
    put_row(at.out.dlogits, group, weights.through(soft_dots(weights, group, at.in.x, at.in.dslots), true));
  });
}

template <>
void compute(const Arrays<ops::SoftCombine>& at) {
  for_soft_groups(at, false, [&](SoftWeights& weights, int64_t group) {
    soft_mix(weights, false, group, at.in.h, at.out.y);
  });
}

template <>
void compute(const Arrays<ops::SoftCombineGrad>& at) {
  for_soft_groups(at, false, [&](SoftWeights& weights, int64_t group) {
    soft_mix(weights, true, group, at.in.dy, at.out.dh);
    put_row(at.out.dlogits, group, weights.through(soft_dots(weights, group, at.in.dy, at.in.h), false));
  });
}

}  // namespace strata::reference
