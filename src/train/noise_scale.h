// The gradient noise scale (McCandlish et al. 2018, "An empirical model of large-batch training", appendix
// A): the batch size, in tokens, up to which larger batches still save almost as many steps as they cost
// tokens. Estimated from the squares of gradients of parts of a step's batch and of the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace strata::training {

// Squares of gradients of some parameters, all cut into the same number of parts. Gradients are means over
// their tokens.
struct NoiseSquares {
  double part = 0;   // mean of the squares of parts' gradients
  double whole = 0;  // squares of the whole batch's gradient
  double parts = 1;  // of the whole batch; several
};

// Part of a run's state: the averages so far.
struct NoiseState {
  int64_t measured = 0;  // steps
  double signal = 0;     // of the squares of the true gradient
  double noise = 0;      // of the trace of the covariance of a token's gradient
  bool operator==(const NoiseState&) const = default;
};
std::string to_json(const NoiseState& state);
// DataError("[where] …") if the text is none.
NoiseState noise_state_from_json(const std::string& text, const std::string& where);

class NoiseScale {
 public:
  // Steps before a value is reported, and how much of the averages a step keeps.
  static constexpr int64_t kFewest = 10;
  static constexpr double kKeep = 0.95;

  explicit NoiseScale(NoiseState state = {}) : state_(state) {}
  const NoiseState& state() const { return state_; }

  // A step of `tokens` tokens. Parameters that are cut in the same way are one entry; squares that are not
  // finite, or of a single part, do not count.
  void add(std::span<const NoiseSquares> squares, double tokens);
  // The ratio of both averages, in tokens; nullopt: too few steps, or noise hides the gradient.
  std::optional<double> tokens() const;

 private:
  NoiseState state_;
};

}  // namespace strata::training
