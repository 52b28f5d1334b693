// The answer of strata plan in words and as JSON.
#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "library/layout_search.h"

namespace strata::library {
namespace {

using Json = nlohmann::ordered_json;
using planning::gigabytes;
using planning::RankedLayout;

std::string step_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.4g} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}

std::string money(double dollars) {
  if (dollars >= 1e6) return fmt::format("${:.2f}M", dollars / 1e6);
  if (dollars >= 1e4) return fmt::format("${:.0f}k", dollars / 1e3);
  return dollars >= 100 ? fmt::format("${:.0f}", dollars) : fmt::format("${:.2f}", dollars);
}

// The binding part in words.
std::string binding_text(const RankedLayout& one) {
  const double percent = 100 * one.binds_share;
  switch (one.binds) {
    case planning::Binds::kMemory:
      return fmt::format("memory: {:.0f} % of the step repeats work that does not fit", percent);
    case planning::Binds::kBandwidth: {
      const planning::StepTime& step = one.step;
      const std::pair<const char*, double> axes[] = {{"tensor", step.tensor},
                                                     {"context", step.context},
                                                     {"expert", step.expert},
                                                     {"pipeline", step.pipeline},
                                                     {"data", step.data}};
      const char* most = "";
      double longest = 0;
      for (const auto& [axis, seconds] : axes) {
        if (seconds <= longest) continue;
        longest = seconds;
        most = axis;
      }
      return fmt::format("bandwidth: {:.0f} % of the step waits for exchanges, most on the {} axis", percent,
                         most);
    }
    case planning::Binds::kBubble:
      return fmt::format("bubble: {:.0f} % of the step waits for other stages", percent);
    case planning::Binds::kBatch:
      return fmt::format(
          "batch: {:.0f} % of the step is there for any batch; {} sequences are {:.0f} a replica", percent,
          static_cast<int64_t>(one.layout.micro_batches) * one.layout.micro_batch * one.layout.data,
          one.layout.micro_batches * static_cast<double>(one.layout.micro_batch));
    case planning::Binds::kCompute:
      return fmt::format("compute: {:.0f} % of the step is arithmetic", percent);
  }
  return "";
}

Json parallel_json(const config::ParallelTable& keys) {
  Json out = {{"replicate", keys.replicate}, {"shard", keys.shard},       {"tensor", keys.tensor},
              {"context", keys.context},     {"pipeline", keys.pipeline}, {"expert", keys.expert}};
  if (!keys.zero.is_word()) out["zero"] = *keys.zero;
  if (!keys.prefetch.is_word()) out["prefetch"] = *keys.prefetch;
  if (keys.expert_tensor > 1) out["expert_tensor"] = keys.expert_tensor;
  if (keys.overlap_chunks > 1) out["overlap_chunks"] = keys.overlap_chunks;
  if (keys.pipeline > 1) {
    out["schedule"] = keys.schedule;
    out["virtual_stages"] = keys.virtual_stages;
  }
  return out;
}

}  // namespace

Json LayoutSearch::json_of(const PlannedLayout& layout) const {
  const RankedLayout& formula = layout.formula;
  const config::RunConfig& config = layout.config;
  const double seconds = layout.seconds();
  const double factor = seconds / formula.seconds;
  const char* recompute = formula.layout.recompute == planning::Recompute::kFull        ? "full"
                          : formula.layout.recompute == planning::Recompute::kSelective ? "selective"
                                                                                        : "none";
  Json out = {{"parallel", parallel_json(config.parallel)},
              {"training",
               {{"global_batch_size", config.training.global_batch_size},
                {"sequence_length", config.training.sequence_length},
                {"micro_batch_size", formula.layout.micro_batch}}},
              {"memory", {{"recompute", recompute}}},
              {"step_time_s", seconds},
              {"step_time_low_s", formula.low * factor},
              {"step_time_high_s", formula.high * factor},
              {"memory_bytes",
               layout.compiled ? static_cast<double>(layout.compiled->bytes) : formula.memory.total()},
              {"mfu", formula.mfu / factor}};
  const auto cost = cost_of(seconds, job_.devices);
  out["cost"] = cost ? Json(*cost) : Json();
  out["run_s"] = run_seconds(seconds);
  out["binds"] = to_string(formula.binds);
  out["binds_share"] = formula.binds_share;
  out["layout"] = layout_in_words(formula.layout);
  out["formula"] = {{"step_time_s", formula.seconds}, {"memory_bytes", formula.memory.total()}};
  out["compiled"] =
      layout.compiled
          ? Json({{"step_time_s", layout.compiled->seconds}, {"memory_bytes", layout.compiled->bytes}})
          : Json();
  if (layout.measured) out["measured_s"] = *layout.measured;
  return out;
}

Json LayoutSearch::json() const {
  Json out = {{"layouts", Json::array()}};
  for (const PlannedLayout& layout : layouts_) out["layouts"].push_back(json_of(layout));
  out["run_toml"] = run_toml();
  out["devices"] = job_.devices;
  out["cluster"] = job_.cluster.name;
  out["tokens"] = tokens_;
  out["memory_limit_bytes"] = found_.memory_limit;
  out["price"] =
      price_ ? Json({{"provider", price_->provider}, {"usd_per_hour", price_->low}, {"date", price_->date}})
             : Json();
  out["searched"] = {{"tried", found_.tried},
                     {"ruled_out", found_.ruled_out},
                     {"too_large", found_.too_large},
                     {"priced", found_.priced}};
  out["cannot_run"] = Json::array();
  for (const auto* list : {&rejected_, &found_.nearest}) {
    for (const planning::Discarded& one : *list)
      out["cannot_run"].push_back({{"layout", one.layout}, {"reason", one.reason}});
  }
  out["sensitivity"] = Json::array();
  for (const planning::Sensitivity& one : more_) {
    out["sensitivity"].push_back({{"what", one.what},
                                  {"devices", one.devices},
                                  {"step_time_s", one.seconds},
                                  {"gain", one.gain},
                                  {"layout", one.layout}});
  }
  out["assumptions"] = assumptions_;
  if (hypotheses_.empty()) return out;
  for (const planning::Hypothesis& one : hypotheses_) {
    const std::optional<double> cost = cost_of(one);
    Json entry = {{"what", one.what},
                  {"note", one.note},
                  {"chip", one.chip},
                  {"layout", layout_in_words(one.best.layout)},
                  {"step_time_s", one.best.seconds},
                  {"step_time_low_s", one.best.low},
                  {"step_time_high_s", one.best.high},
                  {"memory_bytes", one.best.memory.total()},
                  {"host_memory_bytes", one.host_bytes},
                  {"cost", cost ? Json(*cost) : Json()},
                  {"gain", 1 - one.best.seconds / formula_best()}};
    if (!one.cluster.empty()) entry["cluster"] = one.cluster;
    out["hypothetical"].push_back(std::move(entry));
  }
  return out;
}

std::optional<double> LayoutSearch::cost_of(const planning::Hypothesis& one) const {
  const auto prices = planning::prices_of(catalogue_, one.chip, planning::Terms::kOnDemand);
  if (prices.empty()) return std::nullopt;
  return run_seconds(one.best.seconds) / 3600 * static_cast<double>(job_.devices) * prices.front().low;
}

std::string LayoutSearch::hypothesis_text(const planning::Hypothesis& one) const {
  const double faster = formula_best() / one.best.seconds;
  const std::optional<double> cost = cost_of(one);
  std::string out = fmt::format(
      "{:<46} {:>9} a step, {}", one.what, step_text(one.best.seconds),
      faster > 2 ? fmt::format("{:.3g} times as fast", faster)
                 : fmt::format("{:.0f} % {}", 100 * std::abs(1 - 1 / faster), faster >= 1 ? "less" : "more"));
  if (cost) out += ", " + money(*cost);
  out += fmt::format(", {}, {}", gigabytes(one.best.memory.total()), layout_in_words(one.best.layout));
  if (one.host_bytes > 0)
    out += fmt::format("; {} of the host's memory for each device", gigabytes(one.host_bytes));
  return one.note.empty() ? out : out + "; " + one.note;
}

double LayoutSearch::formula_best() const {
  double best = layouts_.front().formula.seconds;
  for (const PlannedLayout& one : layouts_) best = std::min(best, one.formula.seconds);
  return best;
}

std::string LayoutSearch::tried_text() const {
  std::string out;
  for (const PlannedLayout& one : layouts_) {
    if (!one.measured) continue;
    out += fmt::format("  {:>9} {:>9} {:>6.2f}  {}\n", step_text(one.seconds()), step_text(*one.measured),
                       one.seconds() / *one.measured, layout_in_words(one.formula.layout));
  }
  if (out.empty()) return out;
  return fmt::format("\nTried on this machine, the fastest first\n  {:>9} {:>9} {:>6}  {}\n{}", "predicted",
                     "measured", "ratio", "layout", out);
}

std::string LayoutSearch::text() const {
  const auto row = [](const char* name, const std::string& what) {
    return fmt::format("{:<10}{}\n", name, what);
  };
  const double step_tokens = static_cast<double>(job_.batch * job_.sequence);
  std::string out = row("model", fmt::format("{}, {} parameters, {} layers of width {}", model_name_,
                                             human_count(parameters_), job_.shape.layers, job_.shape.hidden));
  out += row("run", fmt::format("{} tokens in steps of {} sequences of {} tokens ({})", human_count(tokens_),
                                job_.batch, job_.sequence, human_count(step_tokens)));
  out += row("devices", fmt::format("{}: {}; {} of memory for each", job_.devices, job_.cluster.title,
                                    gigabytes(found_.memory_limit)));
  for (const std::string& one : assumptions_) out += row("assumed", one);
  out += row("searched",
             fmt::format("{} layouts: {} do not fit, {} priced by formulas, {} compiled", found_.tried,
                         found_.too_large, found_.priced,
                         std::count_if(layouts_.begin(), layouts_.end(), [](const PlannedLayout& one) {
                           return one.compiled.has_value();
                         }) + static_cast<int64_t>(rejected_.size())));
  out += fmt::format("\n{:>3}  {:>9} {:>9}  {:>6} {:>9} {:>9}  {:>9} {:>8}  {}\n", "", "step", "formula",
                     "MFU", "memory", "formula", "run", "cost", "layout");
  int number = 0;
  for (const PlannedLayout& one : layouts_) {
    const RankedLayout& formula = one.formula;
    const auto cost = cost_of(one.seconds(), job_.devices);
    out += fmt::format("{:>3}  {:>9} {:>9}  {:>4.1f} % {:>9} {:>9}  {:>9} {:>8}  {}\n", ++number,
                       one.compiled ? step_text(one.compiled->seconds) : "", step_text(formula.seconds),
                       100 * formula.mfu * formula.seconds / one.seconds(),
                       one.compiled ? gigabytes(static_cast<double>(one.compiled->bytes)) : "",
                       gigabytes(formula.memory.total()), human_duration(run_seconds(one.seconds())),
                       cost ? money(*cost) : "-", layout_in_words(formula.layout));
  }
  const RankedLayout& best = layouts_.front().formula;
  const double factor = layouts_.front().seconds() / best.seconds;
  out += fmt::format("\nThe best: {} to {} a step (90 %). It is limited by {}.\n",
                     step_text(best.low * factor), step_text(best.high * factor), binding_text(best));
  out += tried_text();
  if (price_) {
    out += fmt::format("Cost: ${:.2f} a device hour ({}, {}), without failures, saves and other runs.\n",
                       price_->low, price_->provider, price_->date);
  } else if (!here_) {
    out += fmt::format("Cost: no price of {} is known; add [[price]] to a cluster file.\n",
                       job_.cluster.chip.name);
  }
  if (!more_.empty()) out += "\nWhat more would give, by formulas\n";
  for (const planning::Sensitivity& one : more_) {
    const double percent = 100 * one.gain;
    out += fmt::format("  {:<46} {}\n", one.what,
                       std::abs(percent) < 0.05 ? "nothing"
                       : percent > 0 ? fmt::format("{:.1f} % of the time, with {}", percent, one.layout)
                                     : fmt::format("{:.1f} % more time", -percent));
  }
  if (!hypotheses_.empty())
    out += fmt::format("\nWhat this version cannot run, by formulas, on {} devices\n", job_.devices);
  for (const planning::Hypothesis& one : hypotheses_) out += "  " + hypothesis_text(one) + "\n";
  if (!(rejected_.empty() && found_.nearest.empty())) out += "\nCannot run\n";
  for (const auto* list : {&rejected_, &found_.nearest}) {
    for (const planning::Discarded& one : *list) out += fmt::format("  {}: {}\n", one.layout, one.reason);
  }
  return out + "\nRUN.toml of the best\n\n" + run_toml();
}

}  // namespace strata::library
