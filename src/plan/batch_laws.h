// Laws of batch sizes and learning rates: critical batch, optima by compute or tokens, transfer by width.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "plan/laws.h"

namespace strata::planning {

// McCandlish et al. (arXiv 1812.06162, appendix A), from squared gradient norms at two batch sizes:
// |G|² = (B_big |G_big|² - B_small |G_small|²) / (B_big - B_small),
// tr(Σ) = (|G_small|² - |G_big|²) / (1/B_small - 1/B_big). Average both over steps before taking the ratio.
struct GradientNoise {
  double gradient_squared = 0.0;  // |G|²; may be negative for one step
  double trace = 0.0;             // tr(Σ), in the unit of the batch sizes
  // The simple noise scale B = tr(Σ) / |G|², in the unit of the batch sizes; nullopt unless |G|² > 0.
  std::optional<double> batch() const;
};
GradientNoise gradient_noise(double small_batch, double small_norm_squared, double big_batch,
                             double big_norm_squared);

// (S/S_min - 1)(E/E_min - 1) = 1 with E = B S: a run at batch B takes 1 + critical/B times the minimum of
// steps and 1 + B/critical times the minimum of tokens.
double step_multiple(double batch, double critical_batch);
double token_multiple(double batch, double critical_batch);

// Kaplan et al. (arXiv 2001.08361, eq. 1.4): 2e8 / L^(1/0.21) tokens.
double kaplan_critical_batch(double loss);
// Zhang et al. (arXiv 2410.21676): the critical batch grows as D^0.47 and is independent of N (exponent from
// memory). Scales `reference_batch`, measured at `reference_tokens`.
double critical_batch_at(double tokens, double reference_tokens, double reference_batch);
// The largest useful data axis: sequences in a critical batch of tokens.
int64_t most_data_ranks(double critical_batch_tokens, int64_t sequence_length);

// Published optima of the peak learning rate and the batch (tokens).
struct HyperparameterLaw {
  std::string_view name;
  std::string_view source;
  Evidence evidence = Evidence::kRead;
  // scale * C^flops * N^params * D^tokens
  struct Product {
    double scale = 0.0, flops = 0.0, params = 0.0, tokens = 0.0;
    double at(double params_count, double tokens_count) const;  // with C = 6 N D
  };
  Product learning_rate;
  Product batch;
};
std::span<const HyperparameterLaw> hyperparameter_laws();

// Multipliers of muP for a model whose width is `width_multiple` times that of the tuned one, with Adam.
struct WidthTransfer {
  double matrix_init_std = 1.0;       // hidden matrices
  double matrix_learning_rate = 1.0;  // hidden matrices; unchanged for vectors and embeddings
  double matrix_weight_decay = 1.0;
  double logits = 1.0;           // factor of the output logits
  double attention_scale = 1.0;  // at a fixed number of heads: 1/d_h instead of 1/sqrt(d_h)
};
WidthTransfer width_transfer(double width_multiple);

// The learning rate at another batch size. Far below the critical batch it grows with sqrt(B) for Adam and
// with B for SGD; above it both saturate: lr(B) = lr_max / (1 + critical/B)^p with p = 1/2 or 1 (McCandlish
// et al., eq. D.1).
enum class Optimizer { kAdam, kSgd };
double transfer_learning_rate(double learning_rate, double batch, double new_batch, double critical_batch,
                              Optimizer optimizer);

}  // namespace strata::planning
