// The loss from statistics of logits, and the gradient of the statistics.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/softmax_loss.h"

namespace strata::cpu {
namespace {

constexpr int64_t kTokensPerTask = 256;
constexpr float kAbsent = -std::numeric_limits<float>::infinity();

// Statistics of one token over all shards: in fp64, and exact with one shard.
struct Reduced {
  float maximum = kAbsent;
  double sum = 0;
  float target_logit = kAbsent;
};

const float* statistics_of(const StatisticsArgs& args, int64_t part, int64_t token) {
  return args.statistics + (part * args.tokens + token) * 3;
}

double relative_to(float maximum, const float* statistics) {
  return std::exp(static_cast<double>(statistics[0]) - static_cast<double>(maximum));
}

Reduced reduce(const StatisticsArgs& args, int64_t token) {
  Reduced all;
  for (int64_t p = 0; p < args.parts; ++p) {
    all.maximum = std::max(all.maximum, statistics_of(args, p, token)[0]);
    all.target_logit = std::max(all.target_logit, statistics_of(args, p, token)[2]);
  }
  for (int64_t p = 0; p < args.parts; ++p) {
    const float* part = statistics_of(args, p, token);
    all.sum += static_cast<double>(part[1]) * relative_to(all.maximum, part);
  }
  return all;
}

}  // namespace

void sum_statistics(const StatisticsArgs& args, const StatisticsLoss& to) {
  parallel_ranges(args.tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bool counts = args.targets[i] >= 0;
      const Reduced all = counts ? reduce(args, i) : Reduced{};
      to.scratch[i] = counts ? std::log(all.sum) + static_cast<double>(all.maximum) -
                                   static_cast<double>(all.target_logit)
                             : 0.0;
      if (to.greedy != nullptr) to.greedy[i] = counts && all.target_logit == all.maximum ? 1 : 0;
    }
  });
  detail::sum_losses(args.tokens, to.scratch, args.targets, to.accumulate,
                     {.sum = to.loss_sum, .count = to.count, .of_tokens = to.token_loss});
}

void sum_statistics_grad(const StatisticsArgs& args, float grad_scale, float* dstatistics) {
  parallel_ranges(args.tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bool counts = args.targets[i] >= 0;
      const Reduced all = counts ? reduce(args, i) : Reduced{};
      // Divides like the fused form: by the rounded sum, in fp32.
      const float factor = counts ? grad_scale / static_cast<float>(all.sum) : 0.0f;
      for (int64_t p = 0; p < args.parts; ++p) {
        float* to = dstatistics + (p * args.tokens + i) * 3;
        if (!counts) {
          std::fill_n(to, 3, 0.0f);
          continue;
        }
        const float* part = statistics_of(args, p, i);
        to[1] = factor * static_cast<float>(relative_to(all.maximum, part));
        to[0] = static_cast<float>(static_cast<double>(part[1]) * static_cast<double>(to[1]));
        to[2] = part[2] == kAbsent ? 0.0f : -grad_scale;
      }
    }
  });
}

}  // namespace strata::cpu
