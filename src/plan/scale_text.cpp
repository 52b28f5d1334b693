// Answers of `strata scale` for people and programs.
#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "plan/scale_report.h"

namespace strata::planning {
namespace {

using ScaleJson = nlohmann::ordered_json;

void add_row(std::string& text, std::string_view name, const std::string& value) {
  text += fmt::format("{:<16}{}\n", name, value);
}

// "72.3B  (90 %: 31.2B to 168B)"
std::string with_interval(const Interval& interval) {
  if (!(interval.high > interval.low)) return short_amount(interval.value);
  return fmt::format("{}  (90 %: {} to {})", short_amount(interval.value), short_amount(interval.low),
                     short_amount(interval.high));
}

std::string loss_text(std::optional<double> loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "none";
}

void add_batches(const BatchAdvice& advice, std::string& text) {
  if (advice.critical) {
    add_row(text, "critical batch",
            fmt::format("{} tokens, {}", short_amount(*advice.critical), advice.critical_source));
  }
  if (advice.step_multiple) {
    add_row(text, "batch",
            fmt::format("{} tokens: {:.2f} times the fewest steps, {:.2f} times the fewest tokens",
                        short_amount(*advice.batch), *advice.step_multiple, *advice.token_multiple));
  }
  if (advice.learning_rate) {
    std::string line = fmt::format("{:.3g} for Adam", *advice.learning_rate);
    if (advice.width) {
      line += fmt::format(", {:.3g} for the hidden matrices (muP)",
                          *advice.learning_rate * advice.width->matrix_learning_rate);
    }
    add_row(text, "learning rate", line);
  }
  if (advice.width) {
    add_row(
        text, "muP",
        fmt::format("hidden matrices: std x {:.3g}, rate x {:.3g}, weight decay x {:.3g}; logits x {:.3g}",
                    advice.width->matrix_init_std, advice.width->matrix_learning_rate,
                    advice.width->matrix_weight_decay, advice.width->logits));
  }
  for (const BatchAdvice::Prediction& prediction : advice.predictions) {
    add_row(text, &prediction == advice.predictions.data() ? "tuned values" : "",
            fmt::format("{:<9}  learning rate {:.2e}, batch {} tokens", prediction.law,
                        prediction.learning_rate, short_amount(prediction.batch)));
  }
}

void add_mixture(const ScaleAnswer& answer, std::string& text) {
  if (answer.unique_tokens) {
    add_row(text, "unique tokens",
            fmt::format("{}: {:.2f} epochs, worth {} unique tokens", short_amount(*answer.unique_tokens),
                        answer.tokens.value / *answer.unique_tokens, short_amount(*answer.effective_tokens)));
    add_row(text, "unlimited data", fmt::format("loss {:.4f}", *answer.unlimited_loss));
  }
  if (answer.granularity) {
    add_row(
        text, "granularity",
        fmt::format("{:g}; {} parameters in total", *answer.granularity, short_amount(*answer.total_params)));
    if (answer.dense_flops) {
      add_row(text, "dense model",
              fmt::format("{} FLOPs for the same loss, {:.2f} times this budget",
                          short_flops(*answer.dense_flops), *answer.dense_flops / answer.flops));
    }
  }
  if (answer.experts) {
    add_row(text, "experts",
            fmt::format("{:g} for each feed-forward layer: the loss of a dense model of {}", *answer.experts,
                        short_amount(*answer.dense_params)));
  }
}

ScaleJson json_of(const BatchAdvice& advice) {
  ScaleJson out = ScaleJson::object();
  out["critical"] = json_number_or_null(advice.critical.value_or(NAN));
  if (advice.critical) out["critical_source"] = advice.critical_source;
  if (advice.step_multiple) {
    out["batch"] = *advice.batch;
    out["step_multiple"] = *advice.step_multiple;
    out["token_multiple"] = *advice.token_multiple;
  }
  if (advice.learning_rate) out["learning_rate"] = *advice.learning_rate;
  if (advice.width) {
    out["width"] = {{"matrix_init_std", advice.width->matrix_init_std},
                    {"matrix_learning_rate", advice.width->matrix_learning_rate},
                    {"matrix_weight_decay", advice.width->matrix_weight_decay},
                    {"logits", advice.width->logits},
                    {"attention_scale", advice.width->attention_scale}};
  }
  out["predictions"] = ScaleJson::array();
  for (const BatchAdvice::Prediction& prediction : advice.predictions) {
    out["predictions"].push_back({{"law", prediction.law},
                                  {"source", prediction.source},
                                  {"learning_rate", prediction.learning_rate},
                                  {"batch", prediction.batch}});
  }
  return out;
}

}  // namespace

std::string short_amount(double value) {
  return value < 1e18 && value >= 1 ? human_count(value) : fmt::format("{:.3g}", value);
}

std::string short_flops(double flops) {
  // "5.76e23" as people write it, without the sign of the exponent.
  std::string text = fmt::format("{:.3g}", flops);
  if (const size_t sign = text.find("e+"); sign != std::string::npos) text.erase(sign + 1, 1);
  return text;
}

nlohmann::ordered_json json_number_or_null(double value) {
  return std::isfinite(value) ? ScaleJson(value) : ScaleJson();
}

std::string to_text(const ScaleAnswer& answer) {
  std::string text;
  add_row(text, "law", fmt::format("{}: {}", answer.law, answer.title));
  add_row(text, "",
          answer.source +
              (answer.evidence == Evidence::kRead ? "" : fmt::format(" [{}]", to_string(answer.evidence))));
  if (!answer.equation.empty()) add_row(text, "", answer.equation);
  add_row(text, "compute",
          fmt::format("{} FLOPs (6 N D), {:.4g} PF-days", short_flops(answer.flops),
                      answer.flops / kPetaflopDay));
  add_row(text, "parameters", with_interval(answer.params));
  add_row(text, "tokens", with_interval(answer.tokens));
  add_row(text, "tokens / N", fmt::format("{:.3g}", answer.tokens.value / answer.params.value));
  add_row(text, "loss",
          answer.loss ? fmt::format("{:.4f} nats per token", *answer.loss) : "not part of this law");
  add_mixture(answer, text);
  if (answer.overtraining) {
    const Overtraining& over = *answer.overtraining;
    add_row(text, "overtraining",
            fmt::format("{:.3g} times the tokens that are optimal for this size", over.token_multiple));
    add_row(text, "",
            fmt::format("{:.3g} times the least compute for this loss, {:.3g} times its model size",
                        over.compute_multiple, over.size_fraction));
  }
  for (const OtherAnswer& other : answer.others) {
    add_row(text, other.corrects ? "corrected by" : "corrects",
            fmt::format("{}: {} on {}, loss {}", other.law, short_amount(other.params),
                        short_amount(other.tokens), loss_text(other.loss)));
    add_row(text, "", other.equation);
  }
  if (answer.lifetime) {
    const LifetimeOptimum& life = *answer.lifetime;
    add_row(
        text, "with inference",
        fmt::format("{} on {} for the same loss, and {} tokens of inference", short_amount(life.model.params),
                    short_amount(life.model.tokens), short_amount(*answer.inference_tokens)));
    add_row(text, "",
            fmt::format("{} FLOPs over its life, {:.1f} % fewer than the training optimum",
                        short_flops(life.flops), 100 * life.saved_fraction));
  }
  add_batches(answer.batches, text);
  for (const std::string& note : answer.notes) add_row(text, "note", note);
  return text;
}

std::string table_of(std::span<const ScaleAnswer> answers) {
  std::string text = fmt::format("{:<17}{:>10}{:>10}{:>9}{:>9}  {:<22}{}\n", "law", "params", "tokens", "D/N",
                                 "loss", "90 % interval", "corrected by");
  for (const ScaleAnswer& answer : answers) {
    const Interval& interval =
        answer.uncertain == ScaleAnswer::Uncertain::kTokens ? answer.tokens : answer.params;
    const bool given = answer.uncertain == ScaleAnswer::Uncertain::kNeither;
    const std::string range =
        interval.high > interval.low
            ? fmt::format("{} to {}", short_amount(interval.low), short_amount(interval.high))
        : given ? "both sizes are given"
                : "not published";
    text += fmt::format("{:<17}{:>10}{:>10}{:>9.4g}{:>9}  {:<22}{}\n", answer.law,
                        short_amount(answer.params.value), short_amount(answer.tokens.value),
                        answer.tokens.value / answer.params.value, loss_text(answer.loss), range,
                        find_allocation_law(answer.law).corrected_by);
    text.erase(text.find_last_not_of(" \n") + 1);  // an empty last column
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json json_of(const ScaleAnswer& answer) {
  const bool of_tokens = answer.uncertain == ScaleAnswer::Uncertain::kTokens;
  const Interval& interval = of_tokens ? answer.tokens : answer.params;
  const bool known = interval.high > interval.low;
  ScaleJson out{{"law", answer.law},
                {"params", answer.params.value},
                {"tokens", answer.tokens.value},
                {"loss", json_number_or_null(answer.loss.value_or(NAN))},
                {"low", json_number_or_null(known ? interval.low : NAN)},
                {"high", json_number_or_null(known ? interval.high : NAN)},
                {"interval_of", known ? ScaleJson(of_tokens ? "tokens" : "params") : ScaleJson()},
                {"flops", answer.flops},
                {"source", answer.source},
                {"evidence", to_string(answer.evidence)},
                {"equation", answer.equation}};
  if (answer.overtraining) {
    const Overtraining& over = *answer.overtraining;
    out["overtraining"] = {{"tokens_per_param", over.tokens_per_param},
                           {"token_multiple", over.token_multiple},
                           {"compute_multiple", over.compute_multiple},
                           {"size_fraction", over.size_fraction}};
  }
  if (answer.lifetime) {
    out["lifetime"] = {{"inference_tokens", *answer.inference_tokens},
                       {"params", answer.lifetime->model.params},
                       {"tokens", answer.lifetime->model.tokens},
                       {"loss", answer.lifetime->model.loss},
                       {"flops", answer.lifetime->flops},
                       {"saved_fraction", answer.lifetime->saved_fraction}};
  }
  if (answer.unique_tokens) {
    out["unique_tokens"] = *answer.unique_tokens;
    out["epochs"] = answer.tokens.value / *answer.unique_tokens;
    out["effective_tokens"] = *answer.effective_tokens;
    out["unlimited_loss"] = *answer.unlimited_loss;
  }
  if (answer.granularity) {
    out["granularity"] = *answer.granularity;
    out["total_params"] = *answer.total_params;
    out["dense_flops"] = json_number_or_null(answer.dense_flops.value_or(NAN));
  }
  if (answer.experts) {
    out["experts"] = *answer.experts;
    out["dense_params"] = *answer.dense_params;
  }
  out["compare"] = ScaleJson::array();
  for (const OtherAnswer& other : answer.others) {
    out["compare"].push_back({{"law", other.law},
                              {"relation", other.corrects ? "corrected by" : "corrects"},
                              {"params", other.params},
                              {"tokens", other.tokens},
                              {"loss", json_number_or_null(other.loss.value_or(NAN))},
                              {"equation", other.equation}});
  }
  out["batches"] = json_of(answer.batches);
  out["notes"] = answer.notes;
  return out;
}

}  // namespace strata::planning
