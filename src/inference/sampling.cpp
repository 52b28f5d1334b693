#include "inference/sampling.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "base/hash.h"
#include "base/random.h"

namespace strata::inference {
namespace {

constexpr uint32_t kSamplingStream = 0x5a4d;

// Like transformers' RepetitionPenaltyLogitsProcessor: divides positive and multiplies negative logits of
// seen tokens.
void penalize(std::span<float> logits, std::span<const int32_t> history, double penalty) {
  const std::unordered_set<int32_t> seen(history.begin(), history.end());
  for (const int32_t id : seen) {
    if (static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

double total_of(const std::vector<TokenWeight>& weights) {
  double sum = 0;
  for (const TokenWeight& one : weights) sum += one.weight;
  return sum;
}

}  // namespace

uint64_t seed_of_text(uint64_t seed, std::string_view prompt, int64_t equal_before) {
  return hash64(fmt::format("{} {}", equal_before, prompt), seed);
}

std::vector<TokenWeight> token_weights(std::span<float> logits, std::span<const int32_t> history,
                                       const SamplingOptions& options) {
  if (options.vocab_limit > 0 && static_cast<size_t>(options.vocab_limit) < logits.size()) {
    logits = logits.first(static_cast<size_t>(options.vocab_limit));
  }
  if (options.repetition_penalty != 1.0) penalize(logits, history, options.repetition_penalty);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return {{static_cast<int32_t>(best - logits.begin()), 1.0}};

  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size()) {
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(options.top_k) - 1;
    std::nth_element(order.begin(), last, order.end(),
                     [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
    const float least = logit(*last);
    std::erase_if(order, [&](int32_t id) { return logit(id) < least; });
  }
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<TokenWeight> weights;
  weights.reserve(order.size());
  for (const int32_t id : order)
    weights.push_back({id, std::exp(static_cast<double>(logit(id) - *best) / options.temperature)});
  if (options.top_p < 1.0) {
    const double wanted = options.top_p * total_of(weights);
    double sum = 0;
    size_t kept = 0;
    while (kept < weights.size() && sum < wanted) sum += weights[kept++].weight;
    weights.resize(std::max<size_t>(1, kept));
  }
  if (options.min_p > 0) {
    size_t kept = 1;
    while (kept < weights.size() && weights[kept].weight >= options.min_p * weights[0].weight) ++kept;
    weights.resize(kept);
  }
  return weights;
}

int32_t sample_token(std::span<float> logits, std::span<const int32_t> history,
                     const SamplingOptions& options, uint64_t draw) {
  const std::vector<TokenWeight> weights = token_weights(logits, history, options);
  const auto bits = philox({options.seed, kSamplingStream}, draw);
  const double uniform = (static_cast<double>(bits[0]) + 0x1p-32 * bits[1]) * 0x1p-32;
  double left = uniform * total_of(weights);
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    left -= weights[i].weight;
    if (left < 0) return weights[i].id;
  }
  return weights.back().id;
}

}  // namespace strata::inference
