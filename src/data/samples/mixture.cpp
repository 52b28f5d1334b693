#include "data/samples/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace strata::data {
namespace {

// Whole numbers that sum to `period`, each nearest to its share and at least 1 where the weight is above
// zero.
std::vector<int64_t> apportion(const std::vector<double>& weights, int64_t period) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> counts(weights.size());
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = period;
  for (size_t k = 0; k < weights.size(); ++k) {
    if (weights[k] <= 0) continue;
    const double share = weights[k] / sum * static_cast<double>(period);
    counts[k] = std::max<int64_t>(1, static_cast<int64_t>(share));
    remainders.emplace_back(share - static_cast<double>(counts[k]), k);
    left -= counts[k];
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left) ++counts[remainders[i].second];
  // Sources raised to 1 may have taken too much: the largest give it back.
  for (; left < 0; ++left) --*std::max_element(counts.begin(), counts.end());
  return counts;
}

}  // namespace

Mixture::Mixture(const std::vector<MixturePhase>& phases, const std::vector<int64_t>& limits) {
  STRATA_CHECK(!phases.empty() && phases.front().first_sample == 0, "a mixture starts with a phase at 0");
  STRATA_CHECK(limits.size() <= 65535, "{} sources", limits.size());
  std::vector<int64_t> given(limits.size());
  int64_t first = 0;
  for (size_t p = 0; p < phases.size(); ++p) {
    STRATA_CHECK(phases[p].weights.size() == limits.size(), "{} weights for {} sources",
                 phases[p].weights.size(), limits.size());
    const int64_t stop = p + 1 < phases.size() ? phases[p + 1].first_sample : kUnbounded;
    STRATA_CHECK(stop > phases[p].first_sample, "phase {} does not start after the previous one", p + 1);
    while (first < stop) {
      std::vector<double> weights = phases[p].weights;
      bool any = false;
      for (size_t k = 0; k < weights.size(); ++k) {
        if (given[k] >= limits[k]) weights[k] = 0;
        any = any || weights[k] > 0;
      }
      if (!any) {
        total_ = first;
        return;
      }
      phases_.push_back(make_phase(first, weights, given));
      const Phase& phase = phases_.back();
      // The first sample at which some source would have to give more than it has.
      int64_t end = stop;
      for (size_t k = 0; k < limits.size(); ++k) {
        if (limits[k] == kUnbounded || phase.counts[k] == 0) continue;
        const int64_t left = limits[k] - given[k];
        const int64_t whole = left / phase.counts[k], rest = left % phase.counts[k];
        if (whole > (kUnbounded - first) / kPeriod - 1) continue;
        int64_t place = phase.only >= 0 ? rest : 0;
        if (phase.only < 0) {
          while (phase.source[static_cast<size_t>(place)] != k ||
                 phase.rank[static_cast<size_t>(place)] != rest)
            ++place;
        }
        const int64_t period = phase.only >= 0 ? 1 : kPeriod;
        end = std::min(end, first + whole * period + place);
      }
      if (end < kUnbounded) {
        for (size_t k = 0; k < given.size(); ++k) {
          given[k] += given_within(phase, static_cast<int64_t>(k), end - first);
        }
      }
      first = end;
    }
  }
}

Mixture::Phase Mixture::make_phase(int64_t first, const std::vector<double>& weights,
                                   std::vector<int64_t> given) const {
  Phase phase;
  phase.first = first;
  phase.given = std::move(given);
  const auto active = std::count_if(weights.begin(), weights.end(), [](double w) { return w > 0; });
  if (active == 1) {
    phase.only =
        std::find_if(weights.begin(), weights.end(), [](double w) { return w > 0; }) - weights.begin();
    phase.counts.assign(weights.size(), 0);
    phase.counts[static_cast<size_t>(phase.only)] = 1;
    return phase;
  }
  phase.counts = apportion(weights, kPeriod);
  phase.source.resize(kPeriod);
  phase.rank.resize(kPeriod);
  std::vector<int64_t> done(weights.size());
  for (int64_t r = 0; r < kPeriod; ++r) {
    size_t best = 0;
    int64_t largest = INT64_MIN;
    for (size_t k = 0; k < weights.size(); ++k) {
      if (done[k] == phase.counts[k]) continue;
      const int64_t deficit = phase.counts[k] * (r + 1) - done[k] * kPeriod;
      if (deficit > largest) {
        largest = deficit;
        best = k;
      }
    }
    phase.source[static_cast<size_t>(r)] = static_cast<uint16_t>(best);
    phase.rank[static_cast<size_t>(r)] = static_cast<uint16_t>(done[best]++);
  }
  return phase;
}

int64_t Mixture::given_within(const Phase& phase, int64_t source, int64_t samples) {
  if (phase.only >= 0) return phase.only == source ? samples : 0;
  const auto rest = static_cast<size_t>(samples % kPeriod);
  return samples / kPeriod * phase.counts[static_cast<size_t>(source)] +
         std::count(phase.source.begin(), phase.source.begin() + static_cast<int64_t>(rest),
                    static_cast<uint16_t>(source));
}

const Mixture::Phase& Mixture::phase_of(int64_t sample) const {
  const auto after = std::upper_bound(phases_.begin(), phases_.end(), sample,
                                      [](int64_t s, const Phase& phase) { return s < phase.first; });
  return *(after - 1);
}

Mixture::Place Mixture::operator()(int64_t sample) const {
  STRATA_CHECK(sample >= 0 && sample < total_, "sample {} of {}", sample, total_);
  const Phase& phase = phase_of(sample);
  const int64_t inside = sample - phase.first;
  if (phase.only >= 0) return {phase.only, phase.given[static_cast<size_t>(phase.only)] + inside};
  const auto place = static_cast<size_t>(inside % kPeriod);
  const size_t k = phase.source[place];
  return {static_cast<int64_t>(k), phase.given[k] + inside / kPeriod * phase.counts[k] + phase.rank[place]};
}

int64_t Mixture::given(int64_t source, int64_t samples) const {
  STRATA_CHECK(samples >= 0 && samples <= total_, "{} samples of {}", samples, total_);
  if (samples == 0) return 0;
  const Phase& phase = phase_of(samples - 1);
  return phase.given[static_cast<size_t>(source)] + given_within(phase, source, samples - phase.first);
}

std::vector<double> temperature_weights(const std::vector<int64_t>& tokens, double temperature) {
  std::vector<double> weights;
  double sum = 0;
  const auto largest = static_cast<double>(*std::max_element(tokens.begin(), tokens.end()));
  for (const int64_t count : tokens) {
    weights.push_back(std::pow(static_cast<double>(count) / largest, 1 / temperature));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace strata::data
