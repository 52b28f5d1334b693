#include "plan/scale_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/suggest.h"

namespace strata::planning {
namespace {

constexpr double kMissing = NAN;
// The largest budget of the runs that the Chinchilla laws were fitted to (Hoffmann et al., section 3.2).
constexpr double kLargestChinchilla = 3e21;
// Clark et al. trained every model on this number of tokens, from memory.
constexpr double kRoutedTokens = 130e9;

constexpr std::string_view kDataConstrained = "data-constrained", kFineGrained = "fine-grained",
                           kRouted = "routed";

[[noreturn]] void contradiction(std::string_view first, std::string_view second, std::string_view why) {
  throw ConfigError("[{}] found together with {}: {}; leave one of them out", first, second, why);
}

// The law that is asked for by name or by an option that only one law has.
std::string chosen_law(const ScaleRequest& request) {
  const struct {
    bool given;
    std::string_view option, law;
  } kOptions[] = {{request.unique_tokens.has_value(), "--unique-tokens", kDataConstrained},
                  {request.granularity.has_value(), "--granularity", kFineGrained},
                  {request.experts.has_value(), "--experts", kRouted}};
  std::string law = request.law;
  std::string_view because = "--law";
  for (const auto& option : kOptions) {
    if (!option.given) {
      if (law == option.law) {
        throw ConfigError("[--law] found \"{}\" without {}, which that law needs; add {} N", law,
                          option.option, option.option);
      }
      continue;
    }
    if (!law.empty() && law != option.law) {
      contradiction(option.option, because == "--law" ? fmt::format("--law {}", law) : std::string(because),
                    fmt::format("it belongs to the law \"{}\"", option.law));
    }
    law = option.law;
    because = option.option;
  }
  return law.empty() ? std::string(allocation_laws().front().name) : law;
}

void check_request(const ScaleRequest& request) {
  const int given =
      int{request.flops.has_value()} + int{request.params.has_value()} + int{request.tokens.has_value()};
  if (given == 0) {
    throw ConfigError(
        "[strata scale] found none of --flops, --params and --tokens, expected one of them, or two; for "
        "example --flops 1e21");
  }
  if (given == 3) {
    throw ConfigError(
        "[--flops] found {} together with --params {} and --tokens {}, which already need 6 N D = {}; leave "
        "one of them out",
        short_flops(*request.flops), short_amount(*request.params), short_amount(*request.tokens),
        short_flops(6 * *request.params * *request.tokens));
  }
  if (request.unique_tokens && request.inference_tokens) {
    contradiction("--unique-tokens", "--inference-tokens",
                  "no law covers both repeated data and the cost of inference");
  }
  if (request.learning_rate && !request.width_multiple && !(request.tuned_batch && request.batch)) {
    throw ConfigError(
        "[--lr] found no --lr-batch with --batch, and no --width-multiple, expected the batch that the rate "
        "was tuned for and the new batch, or the ratio of the widths");
  }
  if (request.tuned_batch && !request.learning_rate)
    throw ConfigError("[--lr-batch] found no --lr, expected the learning rate that was tuned at that batch");
}

// Given sizes; completes the third.
struct GivenSizes {
  double params = 0.0, tokens = 0.0;
};
std::optional<GivenSizes> given_sizes(const ScaleRequest& request) {
  if (request.params && request.tokens) return GivenSizes{*request.params, *request.tokens};
  if (request.params && request.flops)
    return GivenSizes{*request.params, *request.flops / (6 * *request.params)};
  if (request.tokens && request.flops)
    return GivenSizes{*request.flops / (6 * *request.tokens), *request.tokens};
  return std::nullopt;
}

Interval exactly(double value) {
  return {value, kMissing, kMissing};
}

Allocation allocate(const AllocationLaw& law, const ScaleRequest& request) {
  if (request.flops) return allocate_flops(law, *request.flops);
  if (request.params) return allocate_params(law, *request.params);
  return allocate_tokens(law, *request.tokens);
}

std::string equation_of_law(const AllocationLaw& law) {
  if (law.loss) return equation_of(*law.loss);
  return fmt::format("N = {:.4g} C^{:g}", law.params_law.scale, law.params_law.exponent);
}

// Both directions: laws that this one replaces, and the one that replaces it.
std::vector<OtherAnswer> corrections(const AllocationLaw& law, const ScaleRequest& request) {
  std::vector<OtherAnswer> out;
  const auto given = given_sizes(request);
  for (const AllocationLaw& other : allocation_laws()) {
    const bool related = other.name == law.corrected_by || other.corrected_by == law.name;
    if (!related || (given && !other.loss)) continue;
    OtherAnswer answer{.law = std::string(other.name),
                       .title = std::string(other.title),
                       .corrects = other.name == law.corrected_by,
                       .equation = equation_of_law(other),
                       .params = 0.0,
                       .tokens = 0.0,
                       .loss = {}};
    if (given) {
      answer.params = given->params;
      answer.tokens = given->tokens;
      answer.loss = other.loss->loss(given->params, given->tokens);
    } else {
      const Allocation found = allocate(other, request);
      answer.params = found.params.value;
      answer.tokens = found.tokens.value;
      answer.loss = found.loss;
    }
    out.push_back(std::move(answer));
  }
  return out;
}

void add_lifetime(const LossLaw& law, const ScaleRequest& request, ScaleAnswer& out) {
  if (!request.inference_tokens) return;
  out.inference_tokens = request.inference_tokens;
  out.lifetime = lifetime_optimum(law, *out.loss, *request.inference_tokens);
}

ScaleAnswer answer_allocation(const AllocationLaw& law, const ScaleRequest& request) {
  ScaleAnswer out{.law = std::string(law.name),
                  .title = std::string(law.title),
                  .source = std::string(law.source),
                  .evidence = law.evidence,
                  .equation = equation_of_law(law)};
  if (const auto given = given_sizes(request)) {
    out.params = exactly(given->params);
    out.tokens = exactly(given->tokens);
    if (law.loss) {
      out.overtraining = overtraining(*law.loss, given->params, given->tokens);
      out.loss = out.overtraining->loss;
    } else if (law.name == "kaplan") {
      out.loss = kaplan_laws().front().law.loss(given->params, given->tokens);
      out.notes.push_back("the loss is that of eq. 1.5 with the constants of eq. 1.1 and 1.2");
    } else {
      throw ConfigError(
          "[--law] found \"{}\", which has no loss for a given size and number of tokens; use chinchilla, "
          "chinchilla-paper, chinchilla-tex or kaplan, or leave out one of the two numbers",
          law.name);
    }
  } else {
    const Allocation found = allocate(law, request);
    out.params = found.params;
    out.tokens = found.tokens;
    out.loss = found.loss;
    out.uncertain = request.params ? ScaleAnswer::Uncertain::kTokens : ScaleAnswer::Uncertain::kParams;
  }
  out.flops = 6 * out.params.value * out.tokens.value;
  out.others = corrections(law, request);
  if (request.inference_tokens && !law.loss) {
    contradiction("--inference-tokens", fmt::format("--law {}", law.name),
                  "that law has no loss at other than optimal sizes");
  }
  if (law.loss) add_lifetime(*law.loss, request, out);
  if (law.pivot > 0 && out.flops > kLargestChinchilla) {
    out.notes.push_back(fmt::format("{:.1f} decades of compute beyond the largest runs of the fit ({} FLOPs)",
                                    std::log10(out.flops / kLargestChinchilla),
                                    short_flops(kLargestChinchilla)));
  }
  if (law.name == "kaplan") out.notes.push_back("N excludes embeddings");
  return out;
}

ScaleAnswer answer_data_constrained(const ScaleRequest& request) {
  const DataConstrainedLaw& law = data_constrained_law();
  const double unique = *request.unique_tokens;
  ScaleAnswer out{.law = std::string(kDataConstrained),
                  .title = "Chinchilla for repeated data",
                  .source = "Muennighoff et al. (arXiv 2305.16264), appendix A, C4",
                  .equation = equation_of(law.law) + " with effective N and D"};
  if (const auto given = given_sizes(request)) {
    out.params = exactly(given->params);
    out.tokens = exactly(given->tokens);
    out.loss = law.loss(given->params, given->tokens, unique);
    out.unlimited_loss = law.law.loss(given->params, given->tokens);
  } else {
    if (!request.flops) {
      contradiction(
          "--unique-tokens",
          request.params ? "--params without --tokens or --flops" : "--tokens without --params or --flops",
          "the law optimizes only for a budget of FLOPs");
    }
    const Optimum best = optimum_for_flops(law, *request.flops, unique);
    out.params = exactly(best.params);
    out.tokens = exactly(best.tokens);
    out.loss = best.loss;
    out.unlimited_loss = optimum_for_flops(law.law, *request.flops).loss;
  }
  out.flops = 6 * out.params.value * out.tokens.value;
  out.unique_tokens = unique;
  out.effective_tokens = law.effective_tokens(unique, out.tokens.value);
  return out;
}

ScaleAnswer answer_fine_grained(const ScaleRequest& request) {
  const double granularity = *request.granularity;
  const LossLaw law = fine_grained_law().of_active(granularity);
  // of_active() scales A by (total / active)^-alpha, so the ratio follows from both.
  const double total_over_active =
      std::pow(fine_grained_law().of_active(granularity, 1.0).a / law.a, 1 / law.alpha);
  ScaleAnswer out{.law = std::string(kFineGrained),
                  .title = "Mixtures of fine-grained experts, 64 times the feed-forward parameters",
                  .source = "Krajewski et al. (arXiv 2402.07871), table 1",
                  .evidence = Evidence::kMemory,
                  .equation = equation_of(law) + " with active N"};
  if (const auto given = given_sizes(request)) {
    out.params = exactly(given->params);
    out.tokens = exactly(given->tokens);
    out.overtraining = overtraining(law, given->params, given->tokens);
    out.loss = out.overtraining->loss;
  } else {
    const Optimum best = request.flops    ? optimum_for_flops(law, *request.flops)
                         : request.params ? optimum_for_params(law, *request.params)
                                          : optimum_for_tokens(law, *request.tokens);
    out.params = exactly(best.params);
    out.tokens = exactly(best.tokens);
    out.loss = best.loss;
  }
  out.flops = 6 * out.params.value * out.tokens.value;
  out.granularity = granularity;
  out.total_params = out.params.value * total_over_active;
  if (const auto dense = optimum_for_loss(fine_grained_dense_law(), *out.loss))
    out.dense_flops = 6 * dense->params * dense->tokens;
  add_lifetime(law, request, out);
  out.notes.push_back("parameters are those that a token uses; memory holds all of them");
  return out;
}

ScaleAnswer answer_routed(const ScaleRequest& request) {
  if (!request.params || request.tokens || request.flops) {
    contradiction("--experts",
                  request.flops    ? "--flops"
                  : request.tokens ? "--tokens"
                                   : "no --params",
                  "the law has only the size of the dense model, --params, at 130B tokens");
  }
  if (request.inference_tokens) {
    contradiction("--experts", "--inference-tokens", "the law does not depend on the number of tokens");
  }
  const RoutedLaw& law = routed_law();
  const double params = *request.params, experts = *request.experts;
  ScaleAnswer out{.law = std::string(kRouted),
                  .title = "Routed models (S-BASE)",
                  .source = "Clark et al. (arXiv 2202.01169), eq. 2 and 6",
                  .evidence = Evidence::kMemory,
                  .equation = fmt::format("log L = {:g} log N + {:g} log E^ + {:g} log N log E^ + {:g}",
                                          law.a, law.b, law.c, law.d)};
  out.params = exactly(params);
  out.tokens = exactly(kRoutedTokens);
  out.flops = 6 * params * kRoutedTokens;
  out.loss = law.loss(params, experts);
  out.experts = experts;
  out.dense_params = law.equivalent_params(params, experts);
  if (params >= law.largest_useful_params())
    out.notes.push_back(
        fmt::format("beyond {} more experts do not help", short_amount(law.largest_useful_params())));
  out.notes.push_back("every model of the fit was trained on 130B tokens");
  return out;
}

BatchAdvice advise(const ScaleRequest& request, const ScaleAnswer& answer) {
  BatchAdvice out;
  const double params = answer.params.value, tokens = answer.tokens.value;
  for (const HyperparameterLaw& law : hyperparameter_laws()) {
    out.predictions.push_back({std::string(law.name), std::string(law.source), law.batch.at(params, tokens),
                               law.learning_rate.at(params, tokens)});
  }
  if (request.measured_batch) {
    out.critical = critical_batch_at(tokens, request.measured_batch->tokens, request.measured_batch->batch);
    out.critical_source = fmt::format("{} measured at {} tokens, growing as D^0.47 (arXiv 2410.21676)",
                                      short_amount(request.measured_batch->batch),
                                      short_amount(request.measured_batch->tokens));
  } else if (answer.loss) {
    out.critical = kaplan_critical_batch(*answer.loss);
    out.critical_source = "from the loss, Kaplan et al. (arXiv 2001.08361), eq. 1.4";
  }
  out.batch = request.batch;
  if (request.batch && out.critical) {
    out.step_multiple = step_multiple(*request.batch, *out.critical);
    out.token_multiple = token_multiple(*request.batch, *out.critical);
  }
  if (request.width_multiple) out.width = width_transfer(*request.width_multiple);
  if (!request.learning_rate) return out;
  double rate = *request.learning_rate;
  if (request.tuned_batch && request.batch) {
    if (!out.critical) {
      throw ConfigError(
          "[--lr] found no loss in the law \"{}\" to estimate the critical batch from; add --critical-batch "
          "B@D, measured by a run",
          answer.law);
    }
    rate =
        transfer_learning_rate(rate, *request.tuned_batch, *request.batch, *out.critical, Optimizer::kAdam);
  }
  out.learning_rate = rate;
  return out;
}

ScaleAnswer with_batches(ScaleAnswer answer, const ScaleRequest& request) {
  answer.batches = advise(request, answer);
  return answer;
}

}  // namespace

std::vector<std::string> scale_law_names() {
  std::vector<std::string> out;
  for (const AllocationLaw& law : allocation_laws()) out.emplace_back(law.name);
  for (const std::string_view name : {kDataConstrained, kFineGrained, kRouted}) out.emplace_back(name);
  return out;
}

ScaleAnswer answer_scale(const ScaleRequest& request) {
  check_request(request);
  const std::string law = chosen_law(request);
  if (law == kDataConstrained) return with_batches(answer_data_constrained(request), request);
  if (law == kFineGrained) return with_batches(answer_fine_grained(request), request);
  if (law == kRouted) return with_batches(answer_routed(request), request);
  const std::vector<std::string> names = scale_law_names();
  if (std::find(names.begin(), names.end(), law) == names.end()) {
    const auto nearest = nearest_name(law, names);
    throw ConfigError("[--law] found \"{}\", expected all or one of {}{}", law, fmt::join(names, ", "),
                      nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
  }
  return with_batches(answer_allocation(find_allocation_law(law), request), request);
}

std::vector<ScaleAnswer> answer_all(const ScaleRequest& request) {
  check_request(request);
  for (const auto& [given, option] :
       {std::pair{request.unique_tokens.has_value(), "--unique-tokens"},
        std::pair{request.granularity.has_value(), "--granularity"},
        std::pair{request.experts.has_value(), "--experts"},
        std::pair{request.inference_tokens.has_value(), "--inference-tokens"}}) {
    if (given) contradiction(option, "--law all", "it does not apply to every law");
  }
  std::vector<ScaleAnswer> out;
  for (const AllocationLaw& law : allocation_laws()) {
    if (given_sizes(request) && !law.loss && law.name != "kaplan") continue;
    out.push_back(with_batches(answer_allocation(law, request), request));
  }
  return out;
}

std::string equation_of(const LossLaw& law) {
  return fmt::format("L = {:.5g} + {:.6g} / N^{:.4g} + {:.6g} / D^{:.4g}", law.e, law.a, law.alpha, law.b,
                     law.beta);
}

}  // namespace strata::planning
