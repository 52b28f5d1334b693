// Answers of `strata scale`: the sizes and the loss that a published law predicts for a budget, the same
// sizes according to the law that corrected it or that it corrected, overtraining, the cheapest model over its
// life, batches and learning rates.
//
// FLOPs are training FLOPs, 6 N D; losses are nats per token; batches are in tokens.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/batch_laws.h"
#include "plan/published_laws.h"

namespace strata::planning {

// A critical batch that was measured, for instance the noise_scale of a run.
struct MeasuredBatch {
  double batch = 0.0;   // tokens
  double tokens = 0.0;  // trained on when it was measured
};

struct ScaleRequest {
  // One of them, or two: then the sizes are given and nothing is optimized.
  std::optional<double> flops = {}, params = {}, tokens = {};
  std::string law = {};                         // of scale_law_names(); empty: follows from the other members
  std::optional<double> inference_tokens = {};  // that the model will process over its life
  std::optional<double> unique_tokens = {};     // all that exist: data-constrained
  std::optional<double> experts = {};           // that replace each feed-forward layer: routed
  std::optional<double> granularity = {};       // number of experts that replace one: fine-grained
  std::optional<double> batch = {};
  std::optional<MeasuredBatch> measured_batch = {};
  std::optional<double> learning_rate = {}, tuned_batch = {};  // a rate and the batch for which it was tuned
  std::optional<double> width_multiple = {};                   // width over that of the tuned model
};

// For --law: the allocation laws, then data-constrained, fine-grained and routed.
std::vector<std::string> scale_law_names();

// The same question answered by a law that corrected the chosen one, or that it corrected.
struct OtherAnswer {
  std::string law = {};
  std::string title = {};
  bool corrects = false;  // the chosen law, which otherwise corrects this one
  std::string equation = {};
  double params = 0.0;
  double tokens = 0.0;
  std::optional<double> loss = {};
};

struct BatchAdvice {
  struct Prediction {
    std::string law = {};
    std::string source = {};
    double batch = 0.0;
    double learning_rate = 0.0;
  };
  std::vector<Prediction> predictions = {};
  std::optional<double> critical = {};  // tokens
  std::string critical_source = {};
  std::optional<double> batch = {};  // asked for
  std::optional<double> step_multiple = {}, token_multiple = {};
  std::optional<double> learning_rate = {};  // at `batch`, and for the matrices of a wider model
  std::optional<WidthTransfer> width = {};
};

struct ScaleAnswer {
  std::string law = {};
  std::string title = {};
  std::string source = {};
  Evidence evidence = Evidence::kRead;
  std::string equation = {};  // empty: a power law without a loss
  double flops = 0.0;
  Interval params = {}, tokens = {};  // 90 %; NaN: no uncertainty was published
  enum class Uncertain { kParams, kTokens, kNeither };
  Uncertain uncertain = Uncertain::kNeither;
  std::optional<double> loss = {};
  std::vector<OtherAnswer> others = {};
  std::optional<Overtraining> overtraining = {};  // of given sizes
  std::optional<double> inference_tokens = {};
  std::optional<LifetimeOptimum> lifetime = {};
  // data-constrained
  std::optional<double> unique_tokens = {}, effective_tokens = {}, unlimited_loss = {};
  // fine-grained and routed
  std::optional<double> total_params = {}, granularity = {}, experts = {};
  std::optional<double> dense_flops = {};   // of a dense model with the same loss (fine-grained)
  std::optional<double> dense_params = {};  // parameters of the dense model with the same loss (routed)
  BatchAdvice batches = {};
  std::vector<std::string> notes = {};  // limits of the law
};

// ConfigError for contradictory requests, which names both options, and for a law that is unknown or has no
// answer.
ScaleAnswer answer_scale(const ScaleRequest& request);
// The answers of all allocation laws.
std::vector<ScaleAnswer> answer_all(const ScaleRequest& request);

std::string to_text(const ScaleAnswer& answer);
// One line for each answer.
std::string table_of(std::span<const ScaleAnswer> answers);
// {"law", "params", "tokens", "loss", "low", "high"}, then "interval_of" and all that was asked for.
nlohmann::ordered_json json_of(const ScaleAnswer& answer);

// "L = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28"
std::string equation_of(const LossLaw& law);
// "72.3B", "5.76e+23": three digits.
std::string short_amount(double value);
std::string short_flops(double flops);
// JSON has no NaN: null.
nlohmann::ordered_json json_number_or_null(double value);

}  // namespace strata::planning
