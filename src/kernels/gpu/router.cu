// Routers: which experts a token goes to, the weights of its choices, and what a router reads.
#include "base/philox.h"
#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/router.cuh"

// Four blocks a multiprocessor bound the registers per thread at 64.
#define STRATA_KERNEL(NAME, ARGS) \
  extern "C" __global__ void __launch_bounds__(256, 4) NAME(const __grid_constant__ ARGS args)

namespace strata::gpu {

// The numbers by which a token chooses: scores and biases; -infinity for NaN and for groups that are left out.
struct Choice {
  const RouteArgs& args;
  const TokenScores& scores;
  const float* kept;  // by group; null: all

  __device__ __forceinline__ float plain(int e) const {
    const float value = args.bias != nullptr ? scores.at(e) + args.bias[e] : scores.at(e);
    return isnan(value) ? -INFINITY : value;
  }
  __device__ __forceinline__ float at(int e) const {
    return kept != nullptr && kept[e / (args.experts / args.groups)] == 0.0f ? -INFINITY : plain(e);
  }
};

// What a group counts: its best expert, its best two together, or all.
__device__ __forceinline__ float score_of_group(const Choice& choice, int group) {
  const int size = choice.args.experts / choice.args.groups, first = group * size;
  float best = -INFINITY, second = -INFINITY, sum = 0.0f;
  for (int e = first; e < first + size; ++e) {
    const float value = choice.plain(e);
    sum += value;
    if (value > best) {
      second = best, best = value;
    } else if (value > second) {
      second = value;
    }
  }
  if (choice.args.group_score == 2) return sum;
  return choice.args.group_score == 1 && size > 1 ? best + second : best;
}

// Of equal groups the first is kept.
__device__ __forceinline__ void keep_groups(const Choice& choice, float* of_groups, float* kept) {
  const int groups = choice.args.groups;
  for (int g = lane_of_thread(); g < groups; g += kWarp) of_groups[g] = score_of_group(choice, g);
  sync_warp();
  for (int g = lane_of_thread(); g < groups; g += kWarp) {
    int before = 0;
    for (int other = 0; other < groups; ++other)
      before += of_groups[other] > of_groups[g] || (of_groups[other] == of_groups[g] && other < g) ? 1 : 0;
    kept[g] = before < choice.args.kept_groups ? 1.0f : 0.0f;
  }
  sync_warp();
}

// The first expert after (value, id) in descending order of value; of equal ones the first comes first.
__device__ __forceinline__ void next_choice(const Choice& choice, float& value, int& id) {
  float best = -INFINITY;
  int at = choice.args.experts;
  for (int e = lane_of_thread(); e < choice.args.experts; e += kWarp) {
    const float by = choice.at(e);
    const bool later = by < value || (by == value && e > id);
    if (later && (at == choice.args.experts || by > best)) best = by, at = e;
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(best, mask);
    const int place = shuffle_xor(at, mask);
    if (other > best || (other == best && place < at)) best = other, at = place;
  }
  value = best, id = at;
}

// Choice s of a token by its hash: the r-th expert of those that are not among the first s ids. One lane.
__device__ __forceinline__ int hashed_choice(const RouteArgs& args, int token, const int32_t* ids, int s) {
  const uint32_t drawn =
      philox_words(0, args.stream, static_cast<uint64_t>(args.hashed[token]), static_cast<uint32_t>(s)).at[0];
  const int r = static_cast<int>(drawn % static_cast<uint32_t>(args.experts - s));
  // The least id with r others before it.
  for (int id = r;;) {
    int taken = 0;
    for (int i = 0; i < s; ++i) taken += ids[i] <= id ? 1 : 0;
    if (r + taken == id) return id;
    id = r + taken;
  }
}

STRATA_KERNEL(route, RouteArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const int lane = lane_of_thread();
  const TokenScores scores(args.logits + token * args.experts, args.experts, args.sigmoid != 0);
  Choice choice{args, scores, nullptr};
  if (args.of_groups != nullptr) {
    float* const of_groups = args.of_groups + token * 2 * args.groups;
    keep_groups(choice, of_groups, of_groups + args.groups);
    choice.kept = of_groups + args.groups;
  }
  int32_t* const ids = args.ids + token * args.k;
  float* const weights = args.weights + token * args.k;
  float sum = args.normalize_eps, value = INFINITY;
  int id = -1;
  for (int s = 0; s < args.k; ++s) {
    if (args.balanced != 0) {
      id = static_cast<int>((token * args.k + s) % args.experts);
    } else if (args.hashed != nullptr) {
      if (lane == 0) id = hashed_choice(args, static_cast<int>(token), ids, s);
      id = shuffle_from(id, 0);
    } else {
      next_choice(choice, value, id);
    }
    const float score = scores.at(id);
    sum += score;
    if (lane == 0) ids[s] = id;
    if (lane == s % kWarp) weights[s] = score;
  }
  const float factor = args.normalize != 0 ? args.scale / sum : args.scale, poison = scores.poison();
  for (int s = lane; s < args.k; s += kWarp) weights[s] = weights[s] * factor + poison;
}

STRATA_KERNEL(route_gradient, RouteArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const TokenScores scores(args.logits + token * args.experts, args.experts, args.sigmoid != 0);
  const int32_t* const ids = args.ids + token * args.k;
  const float* const given = args.dweights + token * args.k;
  float sum = args.normalize_eps, product = 0.0f;
  for (int s = 0; s < args.k; ++s) {
    const float score = scores.at(ids[s]);
    sum += score;
    product += given[s] * score;
  }
  const auto of_choice = [&](int s) {
    return args.scale * (args.normalize != 0 ? (given[s] - product / sum) / sum : given[s]);
  };
  float mean = 0.0f;
  for (int s = 0; s < args.k; ++s) mean += scores.at(ids[s]) * of_choice(s);
  scores.through(args.dlogits + token * args.experts, mean, [&](int e) {
    float d = 0.0f;
    for (int s = 0; s < args.k; ++s) {
      if (ids[s] == e) d += of_choice(s);
    }
    return d;
  });
}

STRATA_KERNEL(router_scores, ScoresArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const TokenScores scores(args.logits + token * args.experts, args.experts, args.sigmoid != 0);
  const float poison = scores.poison();
  const bool by_group = args.rows > 0;
  for (int e = lane_of_thread(); e < args.experts; e += kWarp) {
    const int64_t place = by_group ? (token / args.rows * args.experts + e) * args.rows + token % args.rows
                                   : token * args.experts + e;
    args.scores[place] = scores.at(e) + poison;
  }
}

STRATA_KERNEL(scores_gradient, ScoresArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const TokenScores scores(args.logits + token * args.experts, args.experts, args.sigmoid != 0);
  const float* const given = args.dscores + token * args.experts;
  float mean = 0.0f;
  for (int e = lane_of_thread(); e < args.experts; e += kWarp) mean = fmaf(scores.at(e), given[e], mean);
  scores.through(args.dlogits + token * args.experts, warp_sum(mean), [&](int e) { return given[e]; });
}

// By one lane.
__device__ __forceinline__ float log_sum_exp_of(const float* x, int count) {
  float greatest = x[0], sum = 0.0f;
  for (int i = 1; i < count; ++i) greatest = fmaxf(greatest, x[i]);
  for (int i = 0; i < count; ++i) sum += expf(x[i] - greatest);
  return greatest + logf(sum);
}

// A lane per group of experts.
STRATA_KERNEL(two_level, TwoLevelArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const float* const groups = args.groups + token * args.group_count;
  const float all = log_sum_exp(groups, args.group_count);
  const int size = args.experts / args.group_count;
  for (int g = lane_of_thread(); g < args.group_count; g += kWarp) {
    const int64_t first = token * args.experts + g * size;
    const float shift = groups[g] - all - log_sum_exp_of(args.logits + first, size);
    for (int e = 0; e < size; ++e) args.y[first + e] = args.logits[first + e] + shift;
  }
}

STRATA_KERNEL(two_level_gradient, TwoLevelArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const float* const groups = args.groups + token * args.group_count;
  const float all = log_sum_exp(groups, args.group_count);
  const int size = args.experts / args.group_count;
  float* const dgroups = args.dgroups + token * args.group_count;
  float total = 0.0f;
  for (int g = lane_of_thread(); g < args.group_count; g += kWarp) {
    const int64_t first = token * args.experts + g * size;
    float sum = 0.0f;
    for (int e = 0; e < size; ++e) sum += args.dy[first + e];
    const float z = log_sum_exp_of(args.logits + first, size);
    for (int e = 0; e < size; ++e)
      args.dlogits[first + e] = args.dy[first + e] - expf(args.logits[first + e] - z) * sum;
    dgroups[g] = sum;
    total += sum;
  }
  total = warp_sum(total);
  for (int g = lane_of_thread(); g < args.group_count; g += kWarp)
    dgroups[g] -= expf(groups[g] - all) * total;
}

// A thread per four elements of a row.
STRATA_KERNEL(jitter, JitterArgs) {
  const int64_t fours = (args.columns + 3) / 4,
                at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, row = at / fours;
  if (row >= args.rows) return;
  const int64_t first = at % fours * 4;
  const PhiloxWords bits =
      philox_words(0, args.stream, static_cast<uint64_t>(args.places[2 * row + 1] * fours + at % fours),
                   static_cast<uint32_t>(args.places[2 * row]));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i >= args.columns) return;
    const int64_t place = row * args.columns + first + i;
    const float noise = multiply_apart(2.0f * args.eps, uniform_float(bits.at[i]));
    args.y[place] = multiply_apart(args.x[place], add_apart(1.0f - args.eps, noise));
  }
}

STRATA_KERNEL(sample_places, SamplePlacesArgs) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= args.rows) return;
  args.places[2 * row] = args.samples[row / args.of_sample];
  args.places[2 * row + 1] = static_cast<int32_t>(row % args.of_sample);
}

}  // namespace strata::gpu
