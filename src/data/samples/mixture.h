// The source of the i-th sample of a run, as a pure function of i in O(log phases).
// Weights are rounded to multiples of 1/65536 (largest remainder; a weight above zero keeps at least one),
// and one period of 65,536 samples is laid out by largest deficit: place r goes to the source whose count is
// farthest below its share of r + 1. After i samples a source's count differs from its exact share by at most
// the number of sources, plus i/131072 for the rounding. A source that has yielded all its samples
// (max_epochs) leaves the mixture, and the others share by their weights from there on: a new phase. Phases
// that the user sets (weights from a sample on) are cut in the same way.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::data {

struct MixturePhase {
  int64_t first_sample = 0;     // the first phase starts at 0, later ones rise
  std::vector<double> weights;  // one a source, not negative, at least one above zero
};

class Mixture {
 public:
  static constexpr int64_t kUnbounded = INT64_MAX;

  // limits[k]: the samples that source k can give, kUnbounded where it repeats for ever.
  Mixture(const std::vector<MixturePhase>& phases, const std::vector<int64_t>& limits);

  // The samples until a phase has no source left with samples; kUnbounded if that never happens.
  int64_t total() const { return total_; }

  struct Place {
    int64_t source;
    int64_t index;  // how many samples of that source came before
  };
  Place operator()(int64_t sample) const;
  // How many of the first `samples` (at most total()) come from the source.
  int64_t given(int64_t source, int64_t samples) const;

 private:
  static constexpr int64_t kPeriod = 65536;
  struct Phase {
    int64_t first = 0;
    std::vector<int64_t> given;    // by each source before this phase
    std::vector<int64_t> counts;   // in one period, by each source
    std::vector<uint16_t> source;  // [period], empty if one source yields all
    std::vector<uint16_t> rank;    // [period], earlier places of the same source
    int64_t only = -1;
  };
  Phase make_phase(int64_t first, const std::vector<double>& weights, std::vector<int64_t> given) const;
  const Phase& phase_of(int64_t sample) const;
  static int64_t given_within(const Phase& phase, int64_t source, int64_t samples);

  std::vector<Phase> phases_;
  int64_t total_ = kUnbounded;
};

// The weights tokens^(1/temperature), as shares: 1 is in proportion to size, a higher temperature raises
// small sources (Arivazhagan et al. 2019; XLM-R and mT5 call 1/temperature the exponent and take 0.3).
std::vector<double> temperature_weights(const std::vector<int64_t>& tokens, double temperature);

}  // namespace strata::data
