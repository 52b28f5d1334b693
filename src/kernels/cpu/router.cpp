#include "kernels/cpu/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

HWY_INLINE float greatest_of(const float* x, int64_t n) {
  float greatest = x[0];
  for (int64_t i = 1; i < n; ++i) greatest = std::max(greatest, x[i]);
  return greatest;
}

// to[i] = exp(x[i] − shift); returns the sum.
HWY_INLINE float exponentials(float* to, const float* x, float shift, int64_t n) {
  const Vector by = constant(shift);
  return sum_over(n, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
    const Vector e = store(to + i, exp_clamped(hn::Sub(load(x + i, span), by)), span);
    return hn::Add(sum, keep(e, span));
  });
}

HWY_INLINE void scale_by(float* x, float factor, int64_t n) {
  const Vector by = constant(factor);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR { store(x + i, hn::Mul(load(x + i, span), by), span); });
}

void Scores(float* to, const float* logits, RouterScore score, int64_t n) {
  if (score == RouterScore::kSoftmax) {
    scale_by(to, 1 / exponentials(to, logits, greatest_of(logits, n), n), n);
    return;
  }
  for_vectors(n, [&](int64_t i, auto span)
                     HWY_ATTR { store(to + i, logistic(clamped(load(logits + i, span), 87.0f)).s, span); });
}

// to[i] = the normalized scores; returns the divisor.
float Shares(float* to, const float* logits, RouterScore score, int64_t n) {
  Scores(to, logits, score, n);
  const float sum = sum_over(
      n, [&](int64_t i, auto span, Vector all) HWY_ATTR { return hn::Add(all, load(to + i, span)); });
  scale_by(to, 1 / sum, n);
  return sum;
}

float LogSumExp(float* scratch, const float* logits, int64_t n) {
  const float greatest = greatest_of(logits, n);
  return greatest + std::log(exponentials(scratch, logits, greatest, n));
}

// to[i] = factor · exp(logits[i] − z).
void ScaledExp(float* to, const float* logits, float z, float factor, int64_t n) {
  exponentials(to, logits, z, n);
  scale_by(to, factor, n);
}

// The logits' gradient d from the gradient of their softmax.
HWY_INLINE void through_softmax(float* d, const float* logits, const float* given, int64_t n) {
  Scores(d, logits, RouterScore::kSoftmax, n);
  const float mean = sum_over(n, [&](int64_t i, auto span, Vector all) HWY_ATTR {
    return hn::MulAdd(load(d + i, span), load(given + i, span), all);
  });
  const Vector by = constant(mean);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    store(d + i, hn::Mul(load(d + i, span), hn::Sub(load(given + i, span), by)), span);
  });
}

// d = factor · (given − shift) · s (1 − s).
HWY_INLINE void through_sigmoid(float* d, const float* logits, const float* given, float shift, float factor,
                                int64_t n) {
  const Vector less = constant(shift), times = constant(factor);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Logistic at = logistic(clamped(load(logits + i, span), 87.0f));
    const Vector of_score = hn::Mul(hn::Sub(load(given + i, span), less), times);
    store(d + i, hn::Mul(of_score, hn::Mul(at.s, at.complement)), span);
  });
}

// The logits' gradient from the gradient of the scores.
void ThroughScores(float* d, const float* logits, const float* given, RouterScore score, int64_t n) {
  if (score == RouterScore::kSoftmax) return through_softmax(d, logits, given, n);
  through_sigmoid(d, logits, given, 0, 1, n);
}

// The logits' gradient from the gradient of the shares.
void ThroughShares(float* d, const float* logits, const float* given, RouterScore score, int64_t n) {
  if (score == RouterScore::kSoftmax) return through_softmax(d, logits, given, n);
  const float sum = Shares(d, logits, score, n);
  const float mean = sum_over(n, [&](int64_t i, auto span, Vector all) HWY_ATTR {
    return hn::MulAdd(load(d + i, span), load(given + i, span), all);
  });
  through_sigmoid(d, logits, given, mean, 1 / sum, n);
}

// sums[i] += x[i].
void AddTo(float* sums, const float* x, int64_t n) {
  for_vectors(n, [&](int64_t i, auto span)
                     HWY_ATTR { store(sums + i, hn::Add(load(sums + i, span), load(x + i, span)), span); });
}

template <typename T>
void scale_rows_of(int64_t columns, void* y, const void* x, const float* weights, int64_t begin,
                   int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(x) + row * columns;
    T* const to = static_cast<T*>(y) + row * columns;
    const Vector w = constant(weights[row]);
    for_vectors(columns, [&](int64_t i, auto span)
                             HWY_ATTR { store(to + i, hn::Mul(load(from + i, span), w), span); });
  }
}

template <typename T>
void scale_rows_grad_of(int64_t columns, void* dx, float* d_weights, const void* dy, const void* x,
                        const float* weights, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(x) + row * columns;
    const T* const given = static_cast<const T*>(dy) + row * columns;
    T* const to = static_cast<T*>(dx) + row * columns;
    const Vector w = constant(weights[row]);
    d_weights[row] = sum_over(columns, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
      const Vector d = load(given + i, span);
      const Vector now = hn::MulAdd(d, load(from + i, span), sum);
      store(to + i, hn::Mul(d, w), span);
      return now;
    });
  }
}

void ScaleRows(int64_t columns, void* y, const void* x, const float* weights, DType dtype, int64_t begin,
               int64_t end) {
  const auto rows = by_dtype(dtype, scale_rows_of<float>, scale_rows_of<BF16>, scale_rows_of<F16>);
  rows(columns, y, x, weights, begin, end);
}
void ScaleRowsGrad(int64_t columns, void* dx, float* d_weights, const void* dy, const void* x,
                   const float* weights, DType dtype, int64_t begin, int64_t end) {
  const auto rows =
      by_dtype(dtype, scale_rows_grad_of<float>, scale_rows_grad_of<BF16>, scale_rows_grad_of<F16>);
  rows(columns, dx, d_weights, dy, x, weights, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(Scores);
HWY_EXPORT(Shares);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(ScaledExp);
HWY_EXPORT(ThroughScores);
HWY_EXPORT(ThroughShares);
HWY_EXPORT(AddTo);
HWY_EXPORT(ScaleRows);
HWY_EXPORT(ScaleRowsGrad);

namespace {

constexpr int64_t kTokens = 64;  // per block: a task and a partial sum
constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t blocks_of(int64_t tokens) {
  return (tokens + kTokens - 1) / kTokens;
}

// 0 if all logits are finite, else NaN.
float poison_of(const float* logits, int64_t n) {
  float poison = 0;
  for (int64_t e = 0; e < n; ++e) poison += logits[e] * 0.0f;
  return poison;
}

// The first index of the greatest value.
int64_t first_greatest(const float* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

float second_greatest(const float* x, int64_t n, int64_t best) {
  float second = -kInfinity;
  for (int64_t i = 0; i < n; ++i)
    if (i != best) second = std::max(second, x[i]);
  return second;
}

// Sets the selection scores of dropped groups to -infinity. `of_groups`: scratch for one number per group.
void leave_out_groups(const RouteShape& shape, float* by, float* of_groups) {
  const int64_t size = shape.experts / shape.groups;
  for (int64_t g = 0; g < shape.groups; ++g) {
    const float* const group = by + g * size;
    const int64_t best = first_greatest(group, size);
    of_groups[g] = group[best];
    using Counts = RouteShape::GroupScore;
    if (shape.group_score == Counts::kBestTwo && size > 1) of_groups[g] += second_greatest(group, size, best);
    if (shape.group_score == Counts::kSum) of_groups[g] = std::accumulate(group, group + size, 0.0f);
  }
  for (int64_t g = 0; g < shape.groups; ++g) {
    // Ties keep the first.
    int64_t before = 0;
    for (int64_t other = 0; other < shape.groups; ++other)
      before += of_groups[other] > of_groups[g] || (of_groups[other] == of_groups[g] && other < g);
    if (before >= shape.kept_groups) std::fill_n(by + g * size, size, -kInfinity);
  }
}

// The k experts with the greatest `by`; ties select the first. A selected expert gets -infinity and, so that
// it is not selected again, a mark in `taken`.
void choose(const RouteShape& shape, int32_t* ids, const float* by, float* taken) {
  std::fill_n(taken, shape.experts, 0.0f);
  for (int64_t s = 0; s < shape.k; ++s) {
    int64_t best = -1;
    for (int64_t e = 0; e < shape.experts; ++e)
      if (taken[e] == 0 && (best < 0 || by[e] > by[best])) best = e;
    taken[best] = 1;
    ids[s] = static_cast<int32_t>(best);
  }
}

// Selects the experts of a token by its hash (ops::RouteAttrs::hash_stream). `left`: scratch for all experts.
void choose_by_hash(const RouteShape& shape, int32_t* ids, int32_t token, float* left) {
  for (int64_t e = 0; e < shape.experts; ++e) left[e] = static_cast<float>(e);
  const RandomKey key{.stream = static_cast<uint32_t>(shape.hash_stream)};
  for (int64_t s = 0; s < shape.k; ++s) {
    const auto many = static_cast<uint32_t>(shape.experts - s);
    const uint32_t drawn = philox(key, static_cast<uint64_t>(token), static_cast<uint32_t>(s))[0] % many;
    ids[s] = static_cast<int32_t>(left[drawn]);
    std::copy(left + drawn + 1, left + many, left + drawn);
  }
}

}  // namespace

// For each block of tokens three numbers per expert: scores, selection scores, and group scores or marks.
int64_t route_scratch_bytes(const RouteShape& shape) {
  return blocks_of(shape.tokens) * 3 * shape.experts * int64_t{sizeof(float)};
}

void route(const RouteShape& shape, int32_t* ids, float* weights, const float* logits, const float* bias,
           const int32_t* tokens, void* scratch) {
  const auto scores_of = HWY_DYNAMIC_DISPATCH(Scores);
  const int64_t experts = shape.experts, k = shape.k;
  parallel_ranges(shape.tokens, kTokens, [&](int64_t begin, int64_t end) {
    float* const scores = static_cast<float*>(scratch) + begin / kTokens * 3 * experts;
    float *const by = scores + experts, *const other = by + experts;
    for (int64_t token = begin; token < end; ++token) {
      const float* const row = logits + token * experts;
      int32_t* const chosen = ids + token * k;
      scores_of(scores, row, shape.score, experts);
      if (shape.force_balanced) {
        for (int64_t s = 0; s < k; ++s) chosen[s] = static_cast<int32_t>((token * k + s) % experts);
      } else if (tokens != nullptr) {
        choose_by_hash(shape, chosen, tokens[token], other);
      } else {
        for (int64_t e = 0; e < experts; ++e) {
          const float value = bias != nullptr ? scores[e] + bias[e] : scores[e];
          by[e] = std::isnan(value) ? -kInfinity : value;
        }
        if (shape.groups > 1) leave_out_groups(shape, by, other);
        choose(shape, chosen, by, other);
      }
      float sum = shape.normalize_eps;
      for (int64_t s = 0; s < k; ++s) sum += scores[chosen[s]];
      const float factor = shape.normalize ? shape.scale / sum : shape.scale;
      const float poison = poison_of(row, experts);
      for (int64_t s = 0; s < k; ++s) weights[token * k + s] = scores[chosen[s]] * factor + poison;
    }
  });
}

int64_t route_backward_scratch_bytes(const RouteShape& shape) {
  return blocks_of(shape.tokens) * shape.experts * int64_t{sizeof(float)};
}

void route_backward(const RouteShape& shape, float* d_logits, const float* d_weights, const float* logits,
                    const int32_t* ids, void* scratch) {
  const auto scores_of = HWY_DYNAMIC_DISPATCH(Scores);
  const auto through = HWY_DYNAMIC_DISPATCH(ThroughScores);
  const int64_t experts = shape.experts, k = shape.k;
  parallel_ranges(shape.tokens, kTokens, [&](int64_t begin, int64_t end) {
    float* const of_scores = static_cast<float*>(scratch) + begin / kTokens * experts;
    for (int64_t token = begin; token < end; ++token) {
      const float* const given = d_weights + token * k;
      const int32_t* const chosen = ids + token * k;
      float* const d = d_logits + token * experts;
      scores_of(d, logits + token * experts, shape.score, experts);
      float sum = shape.normalize_eps, product = 0;
      for (int64_t s = 0; s < k; ++s) {
        sum += d[chosen[s]];
        product += given[s] * d[chosen[s]];
      }
      std::fill_n(of_scores, experts, 0.0f);
      for (int64_t s = 0; s < k; ++s)
        of_scores[chosen[s]] += shape.scale * (shape.normalize ? (given[s] - product / sum) / sum : given[s]);
      through(d, logits + token * experts, of_scores, shape.score, experts);
    }
  });
}

void router_scores(int64_t tokens, int64_t experts, RouterScore score, float* scores, const float* logits) {
  const auto scores_of = HWY_DYNAMIC_DISPATCH(Scores);
  parallel_ranges(tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float* const row = logits + token * experts;
      scores_of(scores + token * experts, row, score, experts);
      const float poison = poison_of(row, experts);
      if (std::isnan(poison)) std::fill_n(scores + token * experts, experts, poison);
    }
  });
}

void router_scores_backward(int64_t tokens, int64_t experts, RouterScore score, float* d_logits,
                            const float* d_scores, const float* logits) {
  const auto through = HWY_DYNAMIC_DISPATCH(ThroughScores);
  parallel_ranges(tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token)
      through(d_logits + token * experts, logits + token * experts, d_scores + token * experts, score,
              experts);
  });
}

void scale_rows(int64_t rows, int64_t columns, void* y, const void* x, const float* weights, DType dtype) {
  require_activation_dtype(dtype, "scale_rows");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRows);
  parallel_ranges(rows, rows_per_task(columns),
                  [&](int64_t begin, int64_t end) { kernel(columns, y, x, weights, dtype, begin, end); });
}

void scale_rows_backward(int64_t rows, int64_t columns, void* dx, float* d_weights, const void* dy,
                         const void* x, const float* weights, DType dtype) {
  require_activation_dtype(dtype, "scale_rows_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRowsGrad);
  parallel_ranges(rows, rows_per_task(columns), [&](int64_t begin, int64_t end) {
    kernel(columns, dx, d_weights, dy, x, weights, dtype, begin, end);
  });
}

// Per block the sums of probabilities and the counts, and the shares of one token.
int64_t router_sums_scratch_bytes(const RouterSumsShape& shape) {
  return shape.groups * blocks_of(shape.rows) * 3 * shape.experts * int64_t{sizeof(float)};
}

void router_sums(const RouterSumsShape& shape, float* probabilities, float* counts, const float* logits,
                 const int32_t* ids, void* scratch) {
  const auto shares_of = HWY_DYNAMIC_DISPATCH(Shares);
  const auto add_to = HWY_DYNAMIC_DISPATCH(AddTo);
  const int64_t experts = shape.experts, k = shape.k, blocks = blocks_of(shape.rows);
  const auto partial = [&](int64_t block) { return static_cast<float*>(scratch) + block * 3 * experts; };
  parallel_for(shape.groups * blocks, [&](int64_t block) {
    const int64_t first = block / blocks * shape.rows;
    const int64_t begin = first + block % blocks * kTokens,
                  end = std::min(begin + kTokens, first + shape.rows);
    float *const sums = partial(block), *const found = sums + experts, *const shares = found + experts;
    std::fill_n(sums, 2 * experts, 0.0f);
    for (int64_t token = begin; token < end; ++token) {
      if (!shape.counts(token)) continue;
      shares_of(shares, logits + token * experts, shape.score, experts);
      add_to(sums, shares, experts);
      for (int64_t s = 0; s < k; ++s) ++found[ids[token * k + s]];
    }
  });
  parallel_for(shape.groups, [&](int64_t group) {
    for (int64_t e = 0; e < experts; ++e) {
      double sum = 0, count = 0;
      for (int64_t block = group * blocks; block < (group + 1) * blocks; ++block) {
        sum += double{partial(block)[e]};
        count += double{partial(block)[experts + e]};
      }
      probabilities[group * experts + e] = static_cast<float>(sum);
      counts[group * experts + e] = static_cast<float>(count);
    }
  });
}

void router_sums_backward(const RouterSumsShape& shape, float* d_logits, const float* d_probabilities,
                          const float* logits) {
  const auto through = HWY_DYNAMIC_DISPATCH(ThroughShares);
  const int64_t experts = shape.experts;
  parallel_ranges(shape.groups * shape.rows, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      if (!shape.counts(token)) {
        std::fill_n(d_logits + token * experts, experts, 0.0f);
        continue;
      }
      through(d_logits + token * experts, logits + token * experts,
              d_probabilities + token / shape.rows * experts, shape.score, experts);
    }
  });
}

namespace {

const float* counts_of(const BalanceShape& shape, const float* counts, int64_t group) {
  return counts + (shape.same_counts ? 0 : group * shape.experts);
}

// The factor of a group's Σ counts · probabilities, including its number of targets.
double balance_factor(const BalanceShape& shape, const float* counts, const int32_t* targets, int64_t group) {
  double slots = 0, with_target = 0;
  for (int64_t e = 0; e < shape.experts; ++e) slots += double{counts_of(shape, counts, group)[e]};
  for (int64_t i = group * shape.rows; i < (group + 1) * shape.rows; ++i) with_target += targets[i] >= 0;
  if (slots == 0) return 0;
  return shape.coefficient * with_target * static_cast<double>(shape.experts) /
         (slots * static_cast<double>(shape.tokens));
}

}  // namespace

void balance_loss(const BalanceShape& shape, double* sum, const float* probabilities, const float* counts,
                  const int32_t* targets, bool accumulate) {
  double loss = 0;
  for (int64_t group = 0; group < shape.groups; ++group) {
    double product = 0;
    for (int64_t i = group * shape.experts; i < (group + 1) * shape.experts; ++i)
      product += double{counts_of(shape, counts, group)[i % shape.experts]} * double{probabilities[i]};
    loss += balance_factor(shape, counts, targets, group) * product;
  }
  *sum = accumulate ? *sum + loss : loss;
}

void balance_loss_backward(const BalanceShape& shape, float* d_probabilities, const float* counts,
                           const int32_t* targets) {
  for (int64_t group = 0; group < shape.groups; ++group) {
    const double factor = balance_factor(shape, counts, targets, group);
    for (int64_t i = group * shape.experts; i < (group + 1) * shape.experts; ++i)
      d_probabilities[i] =
          static_cast<float>(factor * double{counts_of(shape, counts, group)[i % shape.experts]});
  }
}

namespace {

// The weight of a token in the sum.
double z_share(const RouterZShape& shape, const int32_t* targets, int64_t token) {
  if (shape.rows == 0) return targets[token] >= 0 ? 1 : 0;
  const int32_t* const own = targets + token / shape.rows * shape.targets;
  const auto counted = std::count_if(own, own + shape.targets, [](int32_t target) { return target >= 0; });
  return static_cast<double>(counted) / static_cast<double>(shape.rows);
}

}  // namespace

// A sum in fp64 per block, followed by the exponentials of one token per block.
int64_t router_z_scratch_bytes(const RouterZShape& shape) {
  return blocks_of(shape.tokens) * (int64_t{sizeof(double)} + shape.experts * int64_t{sizeof(float)});
}

void router_z_loss(const RouterZShape& shape, double* sum, const float* logits, const int32_t* targets,
                   bool accumulate, void* scratch) {
  const auto log_sum_exp = HWY_DYNAMIC_DISPATCH(LogSumExp);
  const int64_t blocks = blocks_of(shape.tokens), experts = shape.experts;
  auto* const partial = static_cast<double*>(scratch);
  auto* const rows = reinterpret_cast<float*>(partial + blocks);
  parallel_for(blocks, [&](int64_t block) {
    double squares = 0;
    for (int64_t token = block * kTokens; token < std::min(shape.tokens, (block + 1) * kTokens); ++token) {
      const double share = z_share(shape, targets, token);
      if (share == 0) continue;
      const double z{log_sum_exp(rows + block * experts, logits + token * experts, experts)};
      squares += share * z * z;
    }
    partial[block] = squares;
  });
  double squares = 0;
  for (int64_t block = 0; block < blocks; ++block) squares += partial[block];
  *sum = (accumulate ? *sum : 0.0) + shape.coefficient * squares;
}

void router_z_loss_backward(const RouterZShape& shape, float* d_logits, const float* logits,
                            const int32_t* targets) {
  const auto log_sum_exp = HWY_DYNAMIC_DISPATCH(LogSumExp);
  const auto scaled_exp = HWY_DYNAMIC_DISPATCH(ScaledExp);
  const int64_t experts = shape.experts;
  parallel_ranges(shape.tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* const d = d_logits + token * experts;
      const double share = z_share(shape, targets, token);
      if (share == 0) {
        std::fill_n(d, experts, 0.0f);
        continue;
      }
      const float z = log_sum_exp(d, logits + token * experts, experts);
      scaled_exp(d, logits + token * experts, z,
                 static_cast<float>(2 * share * shape.coefficient * double{z}), experts);
    }
  });
}

}  // namespace strata::cpu
#endif
