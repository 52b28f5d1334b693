#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "kernels/reference/call.h"
#include "kernels/reference/router_scores.h"

namespace strata::reference {

using Score = ops::RouteAttrs::Score;

Numbers scores_of(const Numbers& logits, Score score) {
  Numbers scores;
  if (score == Score::kSigmoid) {
    for (const double logit : logits) scores.push_back(1 / (1 + std::exp(-logit)));
    return scores;
  }
  const double greatest = *std::max_element(logits.begin(), logits.end());
  for (const double logit : logits) scores.push_back(std::exp(logit - greatest));
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& one : scores) one /= sum;
  return scores;
}

Numbers through_scores(const Numbers& scores, const Numbers& given, Score score) {
  Numbers out;
  const double mean = std::inner_product(scores.begin(), scores.end(), given.begin(), 0.0);
  for (size_t i = 0; i < scores.size(); ++i) {
    out.push_back(score == Score::kSigmoid ? given[i] * scores[i] * (1 - scores[i])
                                           : scores[i] * (given[i] - mean));
  }
  return out;
}

std::vector<int64_t> ranking(const Numbers& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

double poison_of(const Numbers& logits) {
  double poison = 0;
  for (const double logit : logits) poison += logit * 0;
  return poison;
}

namespace {

// (x) → y
void cast(const Call& call) {
  for (int64_t i = 0; i < call.in[0].shape.elements(); ++i) call.out[0].put(i, call.in[0].at(i));
}

// Scores as shares of a token: they add up to 1.
Numbers shares_of(const Numbers& logits, Score score) {
  Numbers scores = scores_of(logits, score);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& one : scores) one /= sum;
  return scores;
}

// What is chosen by, with the groups that are left out as no choice at all.
void leave_out_groups(Numbers& by, const ops::RouteAttrs& attrs) {
  if (attrs.groups == 1) return;
  const size_t size = by.size() / static_cast<size_t>(attrs.groups);
  Numbers of_groups;
  for (size_t g = 0; g < by.size(); g += size) {
    Numbers group(by.begin() + static_cast<std::ptrdiff_t>(g),
                  by.begin() + static_cast<std::ptrdiff_t>(g + size));
    std::sort(group.rbegin(), group.rend());
    using Counts = ops::RouteAttrs::GroupScore;
    const size_t counted = attrs.group_score == Counts::kSum       ? size
                           : attrs.group_score == Counts::kBestTwo ? std::min<size_t>(size, 2)
                                                                   : 1;
    of_groups.push_back(
        std::accumulate(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(counted), 0.0));
  }
  const std::vector<int64_t> order = ranking(of_groups);
  for (size_t i = static_cast<size_t>(attrs.kept_groups); i < order.size(); ++i) {
    const auto first = by.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(order[i]) * size);
    std::fill(first, first + static_cast<std::ptrdiff_t>(size), -std::numeric_limits<double>::infinity());
  }
}

// By a hash of the token: see RouteAttrs::hash_stream.
std::vector<int64_t> hashed(int64_t token, int64_t experts, const ops::RouteAttrs& attrs) {
  std::vector<int64_t> left(static_cast<size_t>(experts)), ids;
  std::iota(left.begin(), left.end(), 0);
  for (int64_t s = 0; s < attrs.k; ++s) {
    const RandomKey key{.stream = static_cast<uint32_t>(attrs.hash_stream)};
    const auto drawn = philox(key, static_cast<uint64_t>(token), static_cast<uint32_t>(s))[0];
    const auto place = left.begin() + static_cast<std::ptrdiff_t>(drawn % left.size());
    ids.push_back(*place);
    left.erase(place);
  }
  return ids;
}

// (logits, bias?, tokens?) → ids, weights
void route(const Call& call) {
  const auto& attrs = call.attrs.as<ops::RouteAttrs>();
  const Array &logits = call.in[0], &bias = call.in[1], &tokens = call.in[2], &ids = call.out[0],
              &weights = call.out[1];
  const int64_t experts = logits.shape[1];
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers scores = scores_of(logits.row(token), attrs.score);
    // The choice is made between numbers as the device has them: fp32.
    // NaN, which has no order, is no choice.
    Numbers by;
    for (int64_t e = 0; e < experts; ++e) {
      const auto score = static_cast<float>(scores[static_cast<size_t>(e)]);
      const float value = bias.present() ? score + static_cast<float>(bias.at(e)) : score;
      by.push_back(std::isnan(value) ? -std::numeric_limits<double>::infinity() : value);
    }
    leave_out_groups(by, attrs);
    const std::vector<int64_t> order =
        tokens.present() ? hashed(tokens.index_at(token), experts, attrs) : ranking(by);
    // NaN where a logit is not finite: no weight of the token is a number then.
    const double poison = poison_of(logits.row(token));
    double sum = attrs.normalize_eps;
    const auto expert_at = [&](int64_t s) {
      return attrs.force_balanced ? (token * attrs.k + s) % experts : order[static_cast<size_t>(s)];
    };
    for (int64_t s = 0; s < attrs.k; ++s) sum += scores[static_cast<size_t>(expert_at(s))];
    for (int64_t s = 0; s < attrs.k; ++s) {
      ids.put(token * attrs.k + s, static_cast<double>(expert_at(s)));
      weights.put(
          token * attrs.k + s,
          attrs.scale * scores[static_cast<size_t>(expert_at(s))] / (attrs.normalize ? sum : 1) + poison);
    }
  }
}

// (dweights, logits, ids) → dlogits
void route_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::RouteAttrs>();
  const Array &given = call.in[0], &logits = call.in[1], &ids = call.in[2], &out = call.out[0];
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers scores = scores_of(logits.row(token), attrs.score);
    Numbers of_scores(scores.size());
    double sum = attrs.normalize_eps, product = 0;
    for (int64_t i = token * attrs.k; i < (token + 1) * attrs.k; ++i) {
      const double score = scores[static_cast<size_t>(ids.index_at(i))];
      sum += score;
      product += given.at(i) * score;
    }
    for (int64_t i = token * attrs.k; i < (token + 1) * attrs.k; ++i) {
      const double through = attrs.normalize ? given.at(i) / sum - product / (sum * sum) : given.at(i);
      of_scores[static_cast<size_t>(ids.index_at(i))] += attrs.scale * through;
    }
    const Numbers row = through_scores(scores, of_scores, attrs.score);
    for (size_t e = 0; e < row.size(); ++e)
      out.put(token * logits.shape[1] + static_cast<int64_t>(e), row[e]);
  }
}

// (x, weights) → y
void scale_rows(const Call& call) {
  const int64_t width = call.in[0].shape[1];
  for (int64_t i = 0; i < call.in[0].shape.elements(); ++i)
    call.out[0].put(i, call.in[0].at(i) * call.in[1].at(i / width));
}

// (dy, x, weights) → dx, dweights
void scale_rows_grad(const Call& call) {
  const Array &dy = call.in[0], &x = call.in[1], &weights = call.in[2];
  const int64_t width = x.shape[1];
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    double sum = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      sum += dy.at(i) * x.at(i);
      call.out[0].put(i, dy.at(i) * weights.at(row));
    }
    call.out[1].put(row, sum);
  }
}

// Tokens of a group of `groups`.
int64_t rows_of(const Array& logits, const Array& groups) {
  return logits.shape[0] / groups.shape[0];
}

// (logits, ids) → probabilities, counts
void router_sums(const Call& call) {
  const auto& attrs = call.attrs.as<ops::RouterSumsAttrs>();
  const auto score = attrs.score;
  const Array &logits = call.in[0], &ids = call.in[1];
  const int64_t rows = rows_of(logits, call.out[0]), experts = logits.shape[1], k = ids.shape[1];
  for (int64_t g = 0; g < call.out[0].shape[0]; ++g) {
    Numbers probabilities(static_cast<size_t>(experts)), counts = probabilities;
    for (int64_t token = g * rows; token < (g + 1) * rows; ++token) {
      if (attrs.idle.has(token)) continue;
      const Numbers shares = shares_of(logits.row(token), score);
      for (size_t e = 0; e < shares.size(); ++e) probabilities[e] += shares[e];
      for (int64_t i = token * k; i < (token + 1) * k; ++i) ++counts[static_cast<size_t>(ids.index_at(i))];
    }
    for (int64_t e = 0; e < experts; ++e) {
      call.out[0].put(g * experts + e, probabilities[static_cast<size_t>(e)]);
      call.out[1].put(g * experts + e, counts[static_cast<size_t>(e)]);
    }
  }
}

// (dprobabilities, logits) → dlogits
void router_sums_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::RouterSumsAttrs>();
  const auto score = attrs.score;
  const Array &given = call.in[0], &logits = call.in[1], &out = call.out[0];
  const int64_t rows = rows_of(logits, given), experts = logits.shape[1];
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers scores = scores_of(logits.row(token), score);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    const Numbers of_shares = given.row(token / rows);
    const double mean = std::inner_product(scores.begin(), scores.end(), of_shares.begin(), 0.0) / sum;
    Numbers of_scores;
    for (const double one : of_shares) of_scores.push_back((one - mean) / sum);
    Numbers row = through_scores(scores, of_scores, score);
    if (attrs.idle.has(token)) std::fill(row.begin(), row.end(), 0.0);
    for (size_t e = 0; e < row.size(); ++e) out.put(token * experts + static_cast<int64_t>(e), row[e]);
  }
}

// What a group's Σ counts · probabilities is multiplied by, its targets counted in.
double balance_factor(const Call& call, const Numbers& counts, const Array& targets, int64_t group) {
  const auto& attrs = call.attrs.as<ops::BalanceLossAttrs>();
  double with_target = 0;
  for (int64_t i = group * attrs.rows; i < (group + 1) * attrs.rows; ++i)
    with_target += targets.index_at(i) >= 0;
  const auto k = static_cast<double>(attrs.k), experts = static_cast<double>(counts.size());
  const double counted = std::accumulate(counts.begin(), counts.end(), 0.0) / k;
  if (counted == 0) return 0;
  return attrs.coefficient * with_target * experts / (k * static_cast<double>(attrs.tokens) * counted);
}

// Those of a group, or of all.
Numbers counts_of(const Array& counts, int64_t group) {
  return counts.row(counts.shape[0] == 1 ? 0 : group);
}

// (probabilities, counts, targets) → sum
void balance_loss(const Call& call) {
  const Array &probabilities = call.in[0], &counts = call.in[1], &targets = call.in[2];
  double sum = 0;
  for (int64_t g = 0; g < probabilities.shape[0]; ++g) {
    const Numbers found = counts_of(counts, g), shares = probabilities.row(g);
    sum += balance_factor(call, found, targets, g) *
           std::inner_product(found.begin(), found.end(), shares.begin(), 0.0);
  }
  call.out[0].give(0, sum);
}

// (counts, targets) → dprobabilities
void balance_loss_grad(const Call& call) {
  const Array &counts = call.in[0], &targets = call.in[1];
  const int64_t experts = counts.shape[1];
  for (int64_t g = 0; g < call.out[0].shape[0]; ++g) {
    const Numbers found = counts_of(counts, g);
    const double factor = balance_factor(call, found, targets, g);
    for (int64_t e = 0; e < experts; ++e)
      call.out[0].put(g * experts + e, factor * found[static_cast<size_t>(e)]);
  }
}

double log_sum_exp(const Numbers& logits) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - greatest);
  return greatest + std::log(sum);
}

// How often a token counts in the z-loss.
double z_share(const Call& call, int64_t token) {
  const Array &logits = call.in[0], &targets = call.in[1];
  const int64_t rows = call.attrs.as<ops::ZLossAttrs>().rows;
  if (rows == 0) return targets.index_at(token) >= 0 ? 1 : 0;
  const int64_t own = targets.shape.elements() / (logits.shape[0] / rows), first = token / rows * own;
  double counted = 0;
  for (int64_t i = first; i < first + own; ++i) counted += targets.index_at(i) >= 0;
  return counted / static_cast<double>(rows);
}

// (logits, targets) → sum
void router_z_loss(const Call& call) {
  double sum = 0;
  for (int64_t token = 0; token < call.in[0].shape[0]; ++token) {
    const double share = z_share(call, token);
    if (share == 0) continue;
    const double z = log_sum_exp(call.in[0].row(token));
    sum += share * z * z;
  }
  call.out[0].give(0, call.attrs.as<ops::ZLossAttrs>().coefficient * sum);
}

// (logits, targets) → dlogits
void router_z_loss_grad(const Call& call) {
  const Array &logits = call.in[0], &out = call.out[0];
  const double coefficient = call.attrs.as<ops::ZLossAttrs>().coefficient;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers row = logits.row(token);
    const double z = log_sum_exp(row);
    const double share = z_share(call, token);
    const double factor = share == 0 ? 0 : 2 * share * coefficient * z;
    for (size_t e = 0; e < row.size(); ++e)
      out.put(token * logits.shape[1] + static_cast<int64_t>(e), factor * std::exp(row[e] - z));
  }
}

}  // namespace

std::span<const Row> router_kernels() {
  static const Row kRows[] = {
      {&ops::kCast, cast},
      {&ops::kRoute, route},
      {&ops::kRouteGrad, route_grad},
      {&ops::kScaleRows, scale_rows},
      {&ops::kScaleRowsGrad, scale_rows_grad},
      {&ops::kRouterSums, router_sums},
      {&ops::kRouterSumsGrad, router_sums_grad},
      {&ops::kBalanceLoss, balance_loss},
      {&ops::kBalanceLossGrad, balance_loss_grad},
      {&ops::kRouterZLoss, router_z_loss},
      {&ops::kRouterZLossGrad, router_z_loss_grad},
  };
  return kRows;
}

}  // namespace strata::reference
