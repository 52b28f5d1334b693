// strata scale: sizes, loss and cost that a published law predicts.
#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "library/scale_runs.h"
#include "plan/amount.h"
#include "plan/run_cost.h"
#include "plan/scale_report.h"

namespace strata::cli {
namespace {

using planning::Interval;
using Text = std::optional<std::string>;

constexpr double kUsualDays = 30;  // of a run whose number of devices is not given

struct ScaleOptions {
  Text flops = {}, params = {}, tokens = {};
  std::string law = {};
  Text inference_tokens = {}, unique_tokens = {}, experts = {}, granularity = {};
  Text batch = {}, critical_batch = {}, lr = {}, lr_batch = {}, width_multiple = {};
  std::string cluster = {};
  std::optional<int64_t> gpus = {};
  Text mfu = {}, save_seconds = {}, spot_interruptions = {}, ablations = {}, ablation_share = {},
       failure_share = {};
  std::string region = {}, provider = {};
  bool json = false;
};

std::optional<double> count_of(std::string_view option, const Text& text) {
  return text ? std::optional(planning::parse_count(option, *text)) : std::nullopt;
}
std::optional<double> flops_of(const Text& text) {
  return text ? std::optional(planning::parse_flops("--flops", *text)) : std::nullopt;
}
std::optional<double> number_of(std::string_view option, const Text& text, double least, double most,
                                std::string_view expected) {
  return text ? std::optional(planning::parse_number(option, *text, least, most, expected)) : std::nullopt;
}

// "0.5M@10B"
std::optional<planning::MeasuredBatch> measured_batch(const Text& text) {
  if (!text) return std::nullopt;
  const size_t at = text->find('@');
  if (at == std::string::npos) {
    throw ConfigError(
        "[--critical-batch] found \"{}\", expected the measured batch and the tokens trained on by then, such "
        "as 0.5M@10B",
        *text);
  }
  return planning::MeasuredBatch{planning::parse_count("--critical-batch", text->substr(0, at)),
                                 planning::parse_count("--critical-batch", text->substr(at + 1))};
}

planning::ScaleRequest request_of(const ScaleOptions& options) {
  planning::ScaleRequest out;
  out.flops = flops_of(options.flops);
  out.params = count_of("--params", options.params);
  out.tokens = count_of("--tokens", options.tokens);
  out.law = options.law;
  out.inference_tokens = count_of("--inference-tokens", options.inference_tokens);
  out.unique_tokens = count_of("--unique-tokens", options.unique_tokens);
  out.experts = number_of("--experts", options.experts, 1, 1e6, "a number of experts from 1");
  out.granularity = number_of("--granularity", options.granularity, 1, 1e4, "a granularity from 1");
  out.batch = count_of("--batch", options.batch);
  out.measured_batch = measured_batch(options.critical_batch);
  out.learning_rate = number_of("--lr", options.lr, 1e-12, 1e3, "a learning rate above 0 such as 3e-4");
  out.tuned_batch = count_of("--lr-batch", options.lr_batch);
  out.width_multiple =
      number_of("--width-multiple", options.width_multiple, 1e-3, 1e6, "a ratio of widths such as 4");
  return out;
}

planning::PricingOptions pricing_of(const ScaleOptions& options) {
  planning::PricingOptions out;
  out.provider = options.provider;
  out.region = options.region;
  constexpr const char* kShare = "a fraction from 0 to 0.99";
  out.spot_hosts_per_month = number_of("--spot-interruptions", options.spot_interruptions, 0, 1e3,
                                       "interruptions of a host in a month, from 0")
                                 .value_or(out.spot_hosts_per_month);
  out.ablations =
      number_of("--ablations", options.ablations, 0, 1e6, "a number of runs from 0").value_or(out.ablations);
  out.ablation_share = number_of("--ablation-share", options.ablation_share, 0, 1e3,
                                 "the cost of one over that of the final run, from 0")
                           .value_or(out.ablation_share);
  out.failure_share =
      number_of("--failure-share", options.failure_share, 0, 0.99, kShare).value_or(out.failure_share);
  return out;
}

struct Priced {
  planning::RunCost cost;
  planning::MfuBand band;
  planning::TrainingPeak peak;
  bool chosen_devices = false;
};

Priced price(const ScaleOptions& options, const planning::ScaleAnswer& answer) {
  const planning::Catalogue catalogue = planning::catalogue_for(options.cluster);
  const planning::ClusterSpec cluster = planning::resolve_cluster(options.cluster);
  Priced out;
  out.peak = planning::training_peak(cluster.chip);
  const auto mfu = number_of("--mfu", options.mfu, 1e-3, 1, "a fraction of the peak above 0 and at most 1");
  out.band = mfu ? planning::MfuBand{{*mfu, *mfu, *mfu}, "--mfu"}
                 : planning::typical_mfu(cluster.chip, answer.total_params.has_value());
  planning::RunWork work;
  work.useful_hours = planning::useful_hours(answer.flops, cluster.chip, out.band);
  work.params = answer.total_params.value_or(answer.params.value);
  work.tokens = answer.tokens.value;
  work.save_seconds =
      number_of("--save-seconds", options.save_seconds, 0.01, 1e6, "a number of seconds from 0.01");
  out.chosen_devices = !options.gpus.has_value();
  work.devices = options.gpus
                     ? *options.gpus
                     : planning::devices_for(cluster, work.useful_hours.value, work.params, kUsualDays);
  out.cost = planning::price_run(catalogue, cluster, work, pricing_of(options));
  return out;
}

// "Hosts of 8 H100 SXM" within a sentence.
std::string lower_first(std::string text) {
  if (text.starts_with("Hosts")) text[0] = 'h';
  return text;
}

std::string text_of(const Priced& priced) {
  const planning::ClusterSpec& cluster = priced.cost.cluster;
  const Interval& mfu = priced.band.mfu;
  std::string text = fmt::format(
      "\n{:<16}{} devices, {}{}\n", "cluster", priced.cost.work.devices, lower_first(cluster.title),
      priced.chosen_devices
          ? fmt::format(": enough for the model and about {:.0f} days; --gpus sets them", kUsualDays)
          : "");
  text += fmt::format("{:<16}{} of {:.0f} TFLOP/s {}{}\n", "MFU",
                      mfu.low == mfu.high ? fmt::format("{:.2f}", mfu.value)
                                          : fmt::format("{:.2f} to {:.2f}", mfu.low, mfu.high),
                      priced.peak.flops_per_s / 1e12, to_string(priced.peak.dtype),
                      mfu.low == mfu.high ? "" : fmt::format(": {}; --mfu sets it", priced.band.source));
  return text + to_text(priced.cost);
}

nlohmann::ordered_json json_of(const Priced& priced) {
  nlohmann::ordered_json out = planning::json_of(priced.cost);
  out["mfu"] = {{"value", priced.band.mfu.value},
                {"low", priced.band.mfu.low},
                {"high", priced.band.mfu.high},
                {"source", priced.band.source}};
  out["peak"] = {{"flops_per_s", priced.peak.flops_per_s}, {"dtype", to_string(priced.peak.dtype)}};
  out["devices_chosen"] = priced.chosen_devices;
  return out;
}

// Options that only apply with --cluster.
void check_cost_options(const ScaleOptions& options) {
  if (!options.cluster.empty()) {
    if (options.law == "all") {
      throw ConfigError(
          "[--cluster] found together with --law all: one run has one cost; choose a law, or leave one out");
    }
    return;
  }
  const struct {
    bool given;
    const char* option;
  } kCostOptions[] = {{options.gpus.has_value(), "--gpus"},
                      {options.mfu.has_value(), "--mfu"},
                      {!options.region.empty(), "--region"},
                      {!options.provider.empty(), "--provider"},
                      {options.save_seconds.has_value(), "--save-seconds"},
                      {options.spot_interruptions.has_value(), "--spot-interruptions"},
                      {options.ablations.has_value(), "--ablations"},
                      {options.ablation_share.has_value(), "--ablation-share"},
                      {options.failure_share.has_value(), "--failure-share"}};
  for (const auto& cost : kCostOptions) {
    if (cost.given)
      throw ConfigError(
          "[{}] found without --cluster, expected the devices to price, such as --cluster h100-sxm",
          cost.option);
  }
}

int run_scale(const ScaleOptions& options) {
  check_cost_options(options);
  planning::ScaleRequest request = request_of(options);
  if (options.law == "all") {
    request.law.clear();
    const std::vector<planning::ScaleAnswer> answers = planning::answer_all(request);
    if (!options.json) print_out("{}", planning::table_of(answers));
    for (const planning::ScaleAnswer& answer : answers) {
      if (options.json) print_out("{}\n", dump_json(planning::json_of(answer)));
    }
    return 0;
  }
  const planning::ScaleAnswer answer = planning::answer_scale(request);
  std::optional<Priced> priced;
  if (!options.cluster.empty()) priced = price(options, answer);
  if (options.json) {
    nlohmann::ordered_json out = planning::json_of(answer);
    if (priced) out["cost"] = json_of(*priced);
    print_out("{}\n", dump_json(out));
    return 0;
  }
  print_out("{}{}", to_text(answer), priced ? text_of(*priced) : "");
  return 0;
}

struct ScaleFitOptions {
  std::vector<std::string> runs = {};
  Text flops = {};
  std::string html = {};
  bool force = false;
  bool json = false;
};

int run_scale_fit(const ScaleFitOptions& options) {
  const std::optional<double> flops = flops_of(options.flops);
  if (!options.html.empty()) check_output_file("--html", options.html, options.force);
  library::ScalePoints points = library::read_scale_points(options.runs);
  planning::FitReport report =
      planning::report_fit(std::move(points.runs), std::move(points.loss_name), flops, points.curves);
  report.notes.insert(report.notes.begin(), points.notes.begin(), points.notes.end());
  if (!options.html.empty())
    write_file_atomically(posix_file_system(), options.html, planning::fit_page(report));
  if (options.json) {
    print_out("{}\n", dump_json(planning::json_of(report)));
    return 0;
  }
  print_out("{}", to_text(report));
  if (!options.html.empty()) print_out("{:<16}{}\n", "page", options.html);
  return 0;
}

void add_scale_fit(Verb scale) {
  auto options = std::make_shared<ScaleFitOptions>();
  Verb verb = scale.verb("fit", "Fit a scaling law to your own runs",
                         "strata scale fit runs/size-* --flops 1e21 --html fit.html");
  verb.option(
          "RUN", options->runs,
          "Folders of runs, names of runs in runs/, or CSV tables with the columns params, tokens and loss; at "
          "least 6 runs")
      .required();
  verb.option("--flops", options->flops, "Also predict the optimal sizes for this budget").type_name("F");
  verb.option("--html", options->html, "Write a page with the plots").type_name("FILE");
  verb.flag("--force", options->force, kForceHelp);
  verb.json(options->json);
  const std::vector<Option> above = scale.options();
  verb.action([options, above] {
    for (const Option& option : above) {
      if (option.given())
        throw ConfigError("[strata scale fit] found {} before fit, expected the options of fit after it",
                          option.names().back());
    }
    return run_scale_fit(*options);
  });
}

void add_cost_options(Verb verb, ScaleOptions& options) {
  verb.option("--cluster", options.cluster, "Add money and risk on these devices: a name, or a file")
      .type_name("NAME|FILE")
      .suggest(planning::builtin_names("cluster"));
  verb.option("--gpus", options.gpus, "Number of devices; unset: enough to finish in about 30 days")
      .positive()
      .type_name("N");
  verb.option("--mfu", options.mfu, "Fraction of the peak; unset: the range of published runs")
      .type_name("F");
  verb.option("--region", options.region, "Energy and CO2 in this region instead of all")
      .type_name("NAME")
      .suggest(planning::builtin_names("region"));
  verb.option("--provider", options.provider, "Offers of this provider instead of all").type_name("NAME");
  verb.option("--save-seconds", options.save_seconds,
              "Time for which a checkpoint blocks the run; unset: writing all of it to storage")
      .type_name("S");
  verb.option("--spot-interruptions", options.spot_interruptions,
              "Interruptions of a spot host in a month (0.1)")
      .type_name("N");
  verb.option("--ablations", options.ablations, "Runs before the final one, in the cost of the campaign")
      .type_name("N");
  verb.option("--ablation-share", options.ablation_share, "Cost of one of them over the final run (0.01)")
      .type_name("F");
  verb.option("--failure-share", options.failure_share, "Share of all attempts that fail halfway (0)")
      .type_name("F");
}

}  // namespace

void add_scale(Verb root) {
  auto options = std::make_shared<ScaleOptions>();
  Verb verb = root.verb("scale", "Optimal sizes and cost for a budget by scaling laws",
                        "strata scale --flops 1e23 --cluster h100-sxm");
  std::vector<std::string> laws = planning::scale_law_names();
  laws.emplace_back("all");
  verb.option("--flops", options->flops, "A budget of training FLOPs: 1e21, 12 ZFLOP, 3640 PF-days")
      .type_name("F");
  verb.option("--params", options->params, "A number of parameters: 7B; with another number, that model")
      .type_name("N");
  verb.option("--tokens", options->tokens, "A number of training tokens: 1.4T").type_name("N");
  verb.option("--law", options->law, "A law (chinchilla); all: a table").type_name("NAME").suggest(laws);
  verb.option("--inference-tokens", options->inference_tokens,
              "Tokens over the model's life: the cheapest model of the same loss")
      .type_name("N");
  verb.option("--unique-tokens", options->unique_tokens, "All tokens that exist, which epochs repeat")
      .type_name("N");
  verb.option("--experts", options->experts, "With --params: experts that replace each feed-forward layer")
      .type_name("N");
  verb.option("--granularity", options->granularity, "Fine-grained experts: the number that replaces one")
      .type_name("N");
  verb.option("--batch", options->batch, "A batch in tokens: its cost in steps and tokens").type_name("N");
  verb.option("--critical-batch", options->critical_batch,
              "A measured critical batch and the tokens trained on by then: 0.5M@10B")
      .type_name("B@D");
  verb.option("--lr", options->lr, "A tuned learning rate of Adam to transfer").type_name("LR");
  verb.option("--lr-batch", options->lr_batch, "The batch in tokens that it was tuned for").type_name("N");
  verb.option("--width-multiple", options->width_multiple, "Width over that of the tuned model, for muP")
      .type_name("Q");
  add_cost_options(verb, *options);
  verb.json(options->json);
  verb.action([options] { return run_scale(*options); });
  add_scale_fit(verb);
}

}  // namespace strata::cli
