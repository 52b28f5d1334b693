// Routers that are no choice of experts by each token.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "kernels/reference/call.h"
#include "kernels/reference/router_scores.h"
#include "ops/expert_choice.h"
#include "ops/jitter.h"
#include "ops/soft_experts.h"
#include "ops/two_level.h"

namespace strata::reference {
namespace {

// --- experts choose

// (logits) → tokens, experts, weights
void expert_choice(const Call& call) {
  const auto& attrs = call.attrs.as<ops::ExpertChoiceAttrs>();
  const Array& logits = call.in[0];
  const int64_t experts = logits.shape[1];
  std::vector<Numbers> scores;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    scores.push_back(scores_of(logits.row(token), attrs.score));
    for (double& score : scores.back()) score += poison_of(logits.row(token));
  }
  int64_t slot = 0;
  for (int64_t first = 0; first < logits.shape[0]; first += attrs.rows) {
    for (int64_t e = 0; e < experts; ++e) {
      Numbers by;  // in fp32, as the device compares them; what is not a number before all others
      for (int64_t token = first; token < first + attrs.rows; ++token) {
        const auto score = static_cast<float>(scores[static_cast<size_t>(token)][static_cast<size_t>(e)]);
        by.push_back(std::isnan(score) ? std::numeric_limits<double>::infinity() : double{score});
      }
      std::vector<int64_t> chosen = ranking(by);
      chosen.resize(static_cast<size_t>(attrs.capacity));
      std::sort(chosen.begin(), chosen.end());
      for (const int64_t token : chosen) {
        call.out[0].put(slot, static_cast<double>(token));
        call.out[1].put(slot, static_cast<double>(e));
        call.out[2].put(slot,
                        attrs.scale * scores[static_cast<size_t>(first + token)][static_cast<size_t>(e)]);
        ++slot;
      }
    }
  }
}

// (dweights, logits, tokens) → dlogits
void expert_choice_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::ExpertChoiceAttrs>();
  const Array &given = call.in[0], &logits = call.in[1], &tokens = call.in[2];
  const int64_t experts = logits.shape[1], of_group = experts * attrs.capacity;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    Numbers of_scores(static_cast<size_t>(experts));
    const int64_t group = token / attrs.rows;
    for (int64_t slot = group * of_group; slot < (group + 1) * of_group; ++slot) {
      if (tokens.index_at(slot) != token % attrs.rows) continue;
      of_scores[static_cast<size_t>(slot % of_group / attrs.capacity)] += attrs.scale * given.at(slot);
    }
    const Numbers row = through_scores(scores_of(logits.row(token), attrs.score), of_scores, attrs.score);
    for (int64_t e = 0; e < experts; ++e) call.out[0].put(token * experts + e, row[static_cast<size_t>(e)]);
  }
}

// (x, tokens) → y
void gather_rows(const Call& call) {
  const auto& attrs = call.attrs.as<ops::GroupRowsAttrs>();
  const int64_t width = call.in[0].shape[1];
  for (int64_t slot = 0; slot < call.in[1].shape[0]; ++slot) {
    const int64_t row = slot / attrs.slots * attrs.rows + call.in[1].index_at(slot);
    for (int64_t c = 0; c < width; ++c) call.out[0].put(slot * width + c, call.in[0].at(row * width + c));
  }
}

// (h, tokens) → y
void scatter_rows(const Call& call) {
  const auto& attrs = call.attrs.as<ops::GroupRowsAttrs>();
  const int64_t width = call.in[0].shape[1];
  Numbers sums(static_cast<size_t>(call.out[0].shape.elements()));
  for (int64_t slot = 0; slot < call.in[1].shape[0]; ++slot) {
    const int64_t row = slot / attrs.slots * attrs.rows + call.in[1].index_at(slot);
    for (int64_t c = 0; c < width; ++c)
      sums[static_cast<size_t>(row * width + c)] += call.in[0].at(slot * width + c);
  }
  for (size_t i = 0; i < sums.size(); ++i) call.out[0].put(static_cast<int64_t>(i), sums[i]);
}

// --- soft experts

// Weights of one group, [rows, slots]: softmaxes over its tokens, or over its slots.
struct Weights {
  int64_t rows, slots, first;  // first: token
  Numbers w;

  Weights(const Array& logits, const ops::SoftExpertsAttrs& attrs, int64_t group, bool over_tokens)
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

// A group's rows of `to`, a slot each or a token each, as sums of the others by its weights.
void mix(Weights& weights, bool to_slots, int64_t group, const Array& from, const Array& to) {
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

// The gradient of a group's weights: products of the rows of its tokens and of its slots.
Numbers dots(const Weights& weights, int64_t group, const Array& of_tokens, const Array& of_slots) {
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

void put_group(const Array& out, int64_t group, const Numbers& d) {
  for (size_t i = 0; i < d.size(); ++i)
    out.put(group * static_cast<int64_t>(d.size()) + static_cast<int64_t>(i), d[i]);
}

// (x, logits) → slots, experts, weights
void soft_dispatch(const Call& call) {
  const auto& attrs = call.attrs.as<ops::SoftExpertsAttrs>();
  const Array& logits = call.in[1];
  const int64_t slots = logits.shape[1];
  for (int64_t group = 0; group < logits.shape[0] / attrs.rows; ++group) {
    Weights weights(logits, attrs, group, true);
    mix(weights, true, group, call.in[0], call.out[0]);
    for (int64_t slot = 0; slot < slots; ++slot) {
      call.out[1].put(group * slots + slot, static_cast<double>(slot / (slots / attrs.experts)));
      call.out[2].put(group * slots + slot, 1);
    }
  }
}

// (dslots, x, logits) → dx, dlogits
void soft_dispatch_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::SoftExpertsAttrs>();
  for (int64_t group = 0; group < call.in[2].shape[0] / attrs.rows; ++group) {
    Weights weights(call.in[2], attrs, group, true);
    mix(weights, false, group, call.in[0], call.out[0]);
    put_group(call.out[1], group, weights.through(dots(weights, group, call.in[1], call.in[0]), true));
  }
}

// (h, logits) → y
void soft_combine(const Call& call) {
  const auto& attrs = call.attrs.as<ops::SoftExpertsAttrs>();
  for (int64_t group = 0; group < call.in[1].shape[0] / attrs.rows; ++group) {
    Weights weights(call.in[1], attrs, group, false);
    mix(weights, false, group, call.in[0], call.out[0]);
  }
}

// (dy, h, logits) → dh, dlogits
void soft_combine_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::SoftExpertsAttrs>();
  for (int64_t group = 0; group < call.in[2].shape[0] / attrs.rows; ++group) {
    Weights weights(call.in[2], attrs, group, false);
    mix(weights, true, group, call.in[0], call.out[0]);
    put_group(call.out[1], group, weights.through(dots(weights, group, call.in[0], call.in[1]), false));
  }
}

// --- two levels

Numbers logs(const Numbers& x) {
  Numbers out;
  for (const double share : scores_of(x, ops::RouteAttrs::Score::kSoftmax)) out.push_back(std::log(share));
  return out;
}

Numbers part(const Numbers& x, size_t first, size_t count) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// (groups, logits) → y
void two_level_logits(const Call& call) {
  const Array &groups = call.in[0], &logits = call.in[1];
  const auto experts = static_cast<size_t>(logits.shape[1]);
  const size_t size = experts / static_cast<size_t>(groups.shape[1]);
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers of_groups = logs(groups.row(token)), row = logits.row(token);
    for (size_t e = 0; e < experts; ++e) {
      const double own = logs(part(row, e / size * size, size))[e % size];
      call.out[0].put(token * logits.shape[1] + static_cast<int64_t>(e), of_groups[e / size] + own);
    }
  }
}

// (dy, groups, logits) → dgroups, dlogits
void two_level_logits_grad(const Call& call) {
  const Array &given = call.in[0], &groups = call.in[1], &logits = call.in[2];
  const auto experts = static_cast<size_t>(logits.shape[1]), count = static_cast<size_t>(groups.shape[1]);
  const size_t size = experts / count;
  constexpr auto kSoftmax = ops::RouteAttrs::Score::kSoftmax;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers dy = given.row(token), row = logits.row(token);
    const Numbers of_groups = scores_of(groups.row(token), kSoftmax);
    const double all = std::accumulate(dy.begin(), dy.end(), 0.0);
    for (size_t g = 0; g < count; ++g) {
      const Numbers d = part(dy, g * size, size), own = scores_of(part(row, g * size, size), kSoftmax);
      const double sum = std::accumulate(d.begin(), d.end(), 0.0);
      call.out[0].put(token * groups.shape[1] + static_cast<int64_t>(g), sum - of_groups[g] * all);
      for (size_t e = 0; e < size; ++e)
        call.out[1].put(token * logits.shape[1] + static_cast<int64_t>(g * size + e), d[e] - own[e] * sum);
    }
  }
}

// --- jitter

// (x, places) → y
void jitter(const Call& call) {
  const auto& attrs = call.attrs.as<ops::JitterAttrs>();
  const Array &x = call.in[0], &places = call.in[1];
  const int64_t width = x.shape[1];
  for (int64_t i = 0; i < x.shape.elements(); ++i) {
    const int64_t row = i / width, column = i % width;
    const auto counter = static_cast<uint64_t>(places.index_at(2 * row + 1) * ((width + 3) / 4) + column / 4);
    const auto bits = philox({.stream = static_cast<uint32_t>(attrs.stream)}, counter,
                             static_cast<uint32_t>(places.index_at(2 * row)));
    const double u = uniform_float(bits[static_cast<size_t>(column % 4)]);
    call.out[0].put(i, x.at(i) * (1 + attrs.eps * (2 * u - 1)));
  }
}

// (samples) → places
void sample_places(const Call& call) {
  const int64_t rows = call.attrs.as<ops::SamplePlacesAttrs>().rows;
  for (int64_t row = 0; row < call.out[0].shape[0]; ++row) {
    call.out[0].put(2 * row, static_cast<double>(call.in[0].index_at(row / rows)));
    call.out[0].put(2 * row + 1, static_cast<double>(row % rows));
  }
}

}  // namespace

std::span<const Row> routers_kernels() {
  static const Row kRows[] = {
      {&ops::kExpertChoice, expert_choice},
      {&ops::kExpertChoiceGrad, expert_choice_grad},
      {&ops::kGatherRows, gather_rows},
      {&ops::kScatterRows, scatter_rows},
      {&ops::kSoftDispatch, soft_dispatch},
      {&ops::kSoftDispatchGrad, soft_dispatch_grad},
      {&ops::kSoftCombine, soft_combine},
      {&ops::kSoftCombineGrad, soft_combine_grad},
      {&ops::kJitter, jitter},
      {&ops::kSamplePlaces, sample_places},
      {&ops::kTwoLevelLogits, two_level_logits},
      {&ops::kTwoLevelLogitsGrad, two_level_logits_grad},
  };
  return kRows;
}

}  // namespace strata::reference
