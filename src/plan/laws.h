// Scaling laws: the loss of a model as a function of its parameters N and training tokens D, and optima.
//
// Losses are in nats per token; compute is training FLOPs, C = 6 N D; N counts all parameters unless noted
// otherwise. A law is valid only for the data and the range that it was fitted to.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "plan/catalogue.h"

namespace strata::planning {

// Returns `value`. ConfigError that names `what` unless it is above 0 and finite.
double require_positive(double value, std::string_view what);

// y = scale * x^exponent.
struct PowerLaw {
  double scale = 0.0;
  double exponent = 0.0;
  double at(double x) const;
  double inverse(double y) const;
};

// Chinchilla, approach 3 (Hoffmann et al., arXiv 2203.15556, eq. 2): L = E + A / N^alpha + B / D^beta.
struct LossLaw {
  double e = 0.0;
  double a = 0.0;
  double b = 0.0;
  double alpha = 0.0;
  double beta = 0.0;
  double loss(double params, double tokens) const;
};

struct Optimum {
  double params = 0.0;
  double tokens = 0.0;
  double loss = 0.0;
};

// The lowest loss for `flops` (eq. 4):
// N = G (C/6)^(beta/(alpha+beta)), G = (alpha A / (beta B))^(1/(alpha+beta)), D = C / (6 N).
Optimum optimum_for_flops(const LossLaw& law, double flops);
// The optimum with `params` parameters, or with `tokens` tokens, at any compute.
Optimum optimum_for_params(const LossLaw& law, double params);
Optimum optimum_for_tokens(const LossLaw& law, double tokens);
// The least compute that reaches a loss; nullopt at or below E.
std::optional<Optimum> optimum_for_loss(const LossLaw& law, double loss);
// Tokens until a model reaches a loss; nullopt if it never does.
std::optional<double> tokens_for_loss(const LossLaw& law, double params, double loss);

// A model trained on more (or fewer) tokens than optimal.
struct Overtraining {
  double loss = 0.0;
  double tokens_per_param = 0.0;
  double token_multiple = 0.0;    // D over the D at which N is optimal
  double compute_multiple = 0.0;  // 6 N D over the least compute for this loss, ≥ 1
  double size_fraction = 0.0;     // N over the parameters at that least compute
};
Overtraining overtraining(const LossLaw& law, double params, double tokens);

// The model with the least lifetime FLOPs, 6 N D + 2 N inference_tokens, that reaches `loss` (Sardana et al.,
// arXiv 2401.00448, eq. 3). Nullopt at or below E.
struct LifetimeOptimum {
  Optimum model;
  double flops = 0.0;           // lifetime
  double saved_fraction = 0.0;  // compared to the model of the same loss that is optimal for training only
};
std::optional<LifetimeOptimum> lifetime_optimum(const LossLaw& law, double loss, double inference_tokens);

// Kaplan et al. (arXiv 2001.08361, eq. 1.5): L = [(N_c / N)^(alpha_n / alpha_d) + D_c / D]^alpha_d.
// N excludes embeddings; data may be repeated with early stopping.
struct KaplanLaw {
  double n_c = 0.0;
  double alpha_n = 0.0;
  double d_c = 0.0;
  double alpha_d = 0.0;
  double loss(double params, double tokens) const;
};
inline constexpr double kPetaflopDay = 1e15 * 86400;  // FLOPs
// Eq. 1.3: L = (C_c / C)^0.050 with C_c = 3.1e8 PF-days.
double kaplan_loss_for_flops(double flops);

// Muennighoff et al. (arXiv 2305.16264, eq. 5 and 6): repeated tokens count less, and so do parameters beyond
// the optimum for the unique tokens.
struct DataConstrainedLaw {
  LossLaw law;
  double token_decay = 0.0;  // R*_D, epochs
  double param_decay = 0.0;  // R*_N
  // D' = U + U R* (1 - exp(-(D/U - 1) / R*)).
  double effective_tokens(double unique_tokens, double tokens) const;
  double effective_params(double unique_tokens, double params) const;
  double loss(double params, double tokens, double unique_tokens) const;
};
// The best model for `flops` when only `unique_tokens` exist.
Optimum optimum_for_flops(const DataConstrainedLaw& law, double flops, double unique_tokens);

// Krajewski et al. (arXiv 2402.07871): L = c + (g / G^gamma + a) / N^alpha + b / D^beta for mixtures with 64
// times the feed-forward parameters that a token uses. N counts all parameters, G is the granularity (the
// number of experts that replace one).
struct FineGrainedLaw {
  double c = 0.0, g = 0.0, gamma = 0.0, a = 0.0, alpha = 0.0, b = 0.0, beta = 0.0;
  // The law in terms of active parameters, for which C = 6 N D. `total_over_active` is total over active
  // parameters (about 43: 64 times the feed-forward two thirds of a dense model, plus the rest).
  LossLaw of_active(double granularity, double total_over_active = 43.0) const;
};

// Clark et al. (arXiv 2202.01169, eq. 2 and 6), logarithms to base 10:
// log L = a log N + b log E^ + c log N log E^ + d, 1/E^ = 1/(E - 1 + 1/(1/E_start - 1/E_max)) + 1/E_max,
// where N are the parameters of the dense model and E the experts that replace each feed-forward layer.
struct RoutedLaw {
  double a = 0.0, b = 0.0, c = 0.0, d = 0.0, e_start = 0.0, e_max = 0.0;
  double loss(double dense_params, double experts) const;
  // Parameters of the dense model with the same loss.
  double equivalent_params(double dense_params, double experts) const;
  // Above this size more experts do not help.
  double largest_useful_params() const;
};

// The argument in [low, high] at which a function with one minimum is lowest. Golden section search in the
// logarithm of the argument, to a relative 1e-9.
double argmin_log(double low, double high, FunctionRef<double(double)> function);

}  // namespace strata::planning
