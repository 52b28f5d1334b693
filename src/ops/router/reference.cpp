#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "ops/reference.h"
#include "ops/router/scores.h"

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

void put_row(const Array& out, int64_t row, const Numbers& numbers) {
  const auto width = static_cast<int64_t>(numbers.size());
  for (int64_t i = 0; i < width; ++i) out.put(row * width + i, numbers[static_cast<size_t>(i)]);
}

namespace {

// Scores as shares of a token: they add up to 1.
Numbers shares_of(const Numbers& logits, Score score) {
  Numbers scores = scores_of(logits, score);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& one : scores) one /= sum;
  return scores;
}

// Scores of the choice; groups that are left out cannot be chosen.
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

}  // namespace

template <>
void compute(const Arrays<ops::Cast>& at) {
  for (int64_t i = 0; i < at.in.x.shape.elements(); ++i) at.out.cast.put(i, at.in.x.at(i));
}

template <>
void compute(const Arrays<ops::Route>& at) {
  const ops::RouteAttrs& attrs = at.attrs;
  const Array &logits = at.in.logits, &bias = at.in.bias, &tokens = at.in.tokens;
  const int64_t experts = logits.shape[1];
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers scores = scores_of(logits.row(token), attrs.score);
    // The choice is made between numbers as the device has them: fp32.
    // NaN, which has no order, is never chosen.
    Numbers by;
    for (int64_t e = 0; e < experts; ++e) {
      const auto score = static_cast<float>(scores[static_cast<size_t>(e)]);
      const float value = bias.present() ? score + static_cast<float>(bias.at(e)) : score;
      by.push_back(std::isnan(value) ? -std::numeric_limits<double>::infinity() : value);
    }
    leave_out_groups(by, attrs);
    const std::vector<int64_t> order =
        tokens.present() ? hashed(tokens.index_at(token), experts, attrs) : ranking(by);
    // NaN if a logit is not finite: then no weight of the token is a number.
    const double poison = poison_of(logits.row(token));
    double sum = attrs.normalize_eps;
    const auto expert_at = [&](int64_t s) {
      return attrs.force_balanced ? (token * attrs.k + s) % experts : order[static_cast<size_t>(s)];
    };
    for (int64_t s = 0; s < attrs.k; ++s) sum += scores[static_cast<size_t>(expert_at(s))];
    for (int64_t s = 0; s < attrs.k; ++s) {
      at.out.ids.put(token * attrs.k + s, static_cast<double>(expert_at(s)));
      at.out.weights.put(
          token * attrs.k + s,
          attrs.scale * scores[static_cast<size_t>(expert_at(s))] / (attrs.normalize ? sum : 1) + poison);
    }
  }
}

template <>
void compute(const Arrays<ops::RouteGrad>& at) {
  const ops::RouteAttrs& attrs = at.attrs;
  const Array &given = at.in.dweights, &logits = at.in.logits, &ids = at.in.ids;
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
    put_row(at.out.dlogits, token, through_scores(scores, of_scores, attrs.score));
  }
}

template <>
void compute(const Arrays<ops::ScaleRows>& at) {
  const Array& x = at.in.x;
  const int64_t width = x.shape[1];
  for (int64_t i = 0; i < x.shape.elements(); ++i) at.out.y.put(i, x.at(i) * at.in.weights.at(i / width));
}

template <>
void compute(const Arrays<ops::ScaleRowsGrad>& at) {
  const Array &dy = at.in.dy, &x = at.in.x;
  const int64_t width = x.shape[1];
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    double sum = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      sum += dy.at(i) * x.at(i);
      at.out.dx.put(i, dy.at(i) * at.in.weights.at(row));
    }
    at.out.dweights.put(row, sum);
  }
}

namespace {

// Tokens of a group of `groups`.
int64_t rows_of_group(const Array& logits, const Array& groups) {
  return logits.shape[0] / groups.shape[0];
}

}  // namespace

template <>
void compute(const Arrays<ops::RouterSums>& at) {
  const Array &logits = at.in.logits, &ids = at.in.ids;
  const int64_t rows = rows_of_group(logits, at.out.counts), experts = logits.shape[1], k = ids.shape[1];
  for (int64_t g = 0; g < at.out.counts.shape[0]; ++g) {
    Numbers probabilities(static_cast<size_t>(experts)), counts = probabilities;
    for (int64_t token = g * rows; token < (g + 1) * rows; ++token) {
      if (at.attrs.idle.has(token)) continue;
      const Numbers shares = shares_of(logits.row(token), at.attrs.score);
      for (size_t e = 0; e < shares.size(); ++e) probabilities[e] += shares[e];
      for (int64_t i = token * k; i < (token + 1) * k; ++i) ++counts[static_cast<size_t>(ids.index_at(i))];
    }
    put_row(at.out.probabilities, g, probabilities);
    put_row(at.out.counts, g, counts);
  }
}

template <>
void compute(const Arrays<ops::RouterSumsGrad>& at) {
  const Array &given = at.in.dprobabilities, &logits = at.in.logits;
  const int64_t rows = rows_of_group(logits, given);
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers scores = scores_of(logits.row(token), at.attrs.score);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    const Numbers of_shares = given.row(token / rows);
    const double mean = std::inner_product(scores.begin(), scores.end(), of_shares.begin(), 0.0) / sum;
    Numbers of_scores;
    for (const double one : of_shares) of_scores.push_back((one - mean) / sum);
    Numbers row = through_scores(scores, of_scores, at.attrs.score);
    if (at.attrs.idle.has(token)) std::fill(row.begin(), row.end(), 0.0);
    put_row(at.out.dlogits, token, row);
  }
}

namespace {

// What a group's Σ counts · probabilities is multiplied by, its targets counted in.
double balance_factor(const ops::BalanceLossAttrs& attrs, const Numbers& counts, const Array& targets,
                      int64_t group) {
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

}  // namespace

template <>
void compute(const Arrays<ops::BalanceLoss>& at) {
  const Array& probabilities = at.in.probabilities;
  double sum = 0;
  for (int64_t g = 0; g < probabilities.shape[0]; ++g) {
    const Numbers found = counts_of(at.in.counts, g), shares = probabilities.row(g);
    sum += balance_factor(at.attrs, found, at.in.targets, g) *
           std::inner_product(found.begin(), found.end(), shares.begin(), 0.0);
  }
  at.out.sum.give(0, sum);
}

template <>
void compute(const Arrays<ops::BalanceLossGrad>& at) {
  const Array& out = at.out.dprobabilities;
  for (int64_t g = 0; g < out.shape[0]; ++g) {
    Numbers row = counts_of(at.in.counts, g);
    const double seed = at.in.seed.present() ? at.in.seed.at(0) : 1;
    const double factor = seed * balance_factor(at.attrs, row, at.in.targets, g);
    for (double& one : row) one *= factor;
    put_row(out, g, row);
  }
}

namespace {

double log_sum_exp_of(const Numbers& logits) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - greatest);
  return greatest + std::log(sum);
}

// How often a token counts in the z-loss.
template <typename Op>
double z_share(const Arrays<Op>& at, int64_t token) {
  const Array &logits = at.in.logits, &targets = at.in.targets;
  const int64_t rows = at.attrs.rows;
  if (rows == 0) return targets.index_at(token) >= 0 ? 1 : 0;
  const int64_t own = targets.shape.elements() / (logits.shape[0] / rows), first = token / rows * own;
  double counted = 0;
  for (int64_t i = first; i < first + own; ++i) counted += targets.index_at(i) >= 0;
  return counted / static_cast<double>(rows);
}

}  // namespace

template <>
void compute(const Arrays<ops::RouterZLoss>& at) {
  double sum = 0;
  for (int64_t token = 0; token < at.in.logits.shape[0]; ++token) {
    const double share = z_share(at, token);
    if (share == 0) continue;
    const double z = log_sum_exp_of(at.in.logits.row(token));
    sum += share * z * z;
  }
  at.out.sum.give(0, at.attrs.coefficient * sum);
}

template <>
void compute(const Arrays<ops::RouterZLossGrad>& at) {
  for (int64_t token = 0; token < at.in.logits.shape[0]; ++token) {
    Numbers row = at.in.logits.row(token);
    const double z = log_sum_exp_of(row), share = z_share(at, token);
    const double seed = at.in.seed.present() ? at.in.seed.at(0) : 1;
    const double factor = share == 0 ? 0 : 2 * share * seed * at.attrs.coefficient * z;
    for (double& one : row) one = factor * std::exp(one - z);
    put_row(at.out.dlogits, token, row);
  }
}

}  // namespace strata::reference
