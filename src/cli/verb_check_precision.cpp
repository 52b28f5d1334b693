// strata check precision
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/one_process.h"
#include "cli/output.h"
#include "cli/share_done.h"
#include "cli/verbs.h"
#include "library/precision_check.h"

namespace strata::cli {
namespace {

using evaluation::OperandLoss;
using evaluation::ProductLoss;
using evaluation::ProductRole;
using Json = nlohmann::ordered_json;

Json json_of(const library::PrecisionCheck& check) {
  Json products = Json::array();
  for (const ProductLoss& product : check.products) {
    Json operands = Json::array();
    for (const OperandLoss& operand : product.operands) {
      operands.push_back({{"tensor", operand.tensor},
                          {"format", operand.format},
                          {"scales", operand.rule},
                          {"snr_db", operand.snr_db},
                          {"saturated", operand.saturated},
                          {"flushed", operand.flushed}});
    }
    products.push_back({{"op", product.op},
                        {"layer", product.layer == graph::kNone ? Json() : Json(product.layer)},
                        {"role", name_of(product.role)},
                        {"weight", product.weight},
                        {"operands", std::move(operands)},
                        {"snr_db", product.snr_db},
                        {"gate_db", product.gate_db},
                        {"rows", product.rows},
                        {"rows_compared", product.rows_compared}});
  }
  return {{"recipe", check.recipe}, {"weights", check.weights}, {"step", check.step},
          {"products", products},   {"worst", check.worst()},   {"fits", check.fits()}};
}

const char* words_of(ProductRole role) {
  switch (role) {
    case ProductRole::kForward:
      return "output";
    case ProductRole::kInputGrad:
      return "input gradient";
    case ProductRole::kWeightGrad:
      return "weight gradient";
  }
  return "";
}

// The matmuls that come closest to their gates, or below them, first.
std::vector<const ProductLoss*> worst_first(const std::vector<ProductLoss>& products) {
  std::vector<const ProductLoss*> sorted;
  for (const ProductLoss& product : products) sorted.push_back(&product);
  std::stable_sort(sorted.begin(), sorted.end(), [](const ProductLoss* a, const ProductLoss* b) {
    return a->snr_db - a->gate_db < b->snr_db - b->gate_db;
  });
  return sorted;
}

std::string text_of(const library::PrecisionCheck& check) {
  constexpr size_t kShown = 12;
  const auto sorted = worst_first(check.products);
  const auto below = static_cast<size_t>(
      std::count_if(sorted.begin(), sorted.end(), [](const ProductLoss* each) { return !each->fits(); }));
  std::string text = fmt::format(
      "recipe {}, {}, {} x {} tokens of step {}: {} matmuls, worst first\n"
      "signal to noise of results and operands in dB; shares of an operand's elements that saturate, or become 0\n\n"
      "result  gate  layer  {:<15}  {:<30}  operands\n",
      check.recipe, check.weights, check.sequences, check.sequence_length, check.step, sorted.size(),
      "matmul", "weight");
  const size_t shown = std::min(sorted.size(), std::max(kShown, below));
  for (size_t i = 0; i < shown; ++i) {
    const ProductLoss& product = *sorted[i];
    std::string operands;
    for (const OperandLoss& operand : product.operands) {
      operands += fmt::format("{}{} {:.1f} ({:.2g} %, {:.2g} %)", operands.empty() ? "" : ", ",
                              operand.format, operand.snr_db, 100 * operand.saturated, 100 * operand.flushed);
    }
    text += fmt::format("{:6.1f}  {:4.0f}  {:>5}  {:<15}  {:<30}  {}\n", product.snr_db, product.gate_db,
                        product.layer == graph::kNone ? "-" : std::to_string(product.layer),
                        words_of(product.role), product.weight, operands);
  }
  if (shown < sorted.size())
    text += fmt::format("and {} more, of at least {:.1f} dB above the gate\n", sorted.size() - shown,
                        sorted[shown]->snr_db - sorted[shown]->gate_db);
  if (below == 0) return text + "\nall matmuls are above the gate\n";
  return text +
         fmt::format(
             "\n{} of {} matmuls are below the gate: take a recipe with more bits or smaller blocks, or keep their "
             "layers in bf16 with precision.keep, as in [\"first 1\", \"last 1\"]\n",
             below, sorted.size());
}

}  // namespace

int run_precision_check(const PrecisionCheckOptions& options) {
  require_one_process("strata check precision");
  ShareDone show;
  const library::PrecisionCheck check = library::check_precision(
      {.inputs = options.inputs, .model = options.model, .sets = options.sets, .progress = [&](double share) {
         if (stop_requested()) throw Interrupted();
         show(share);
       }});
  if (options.json) {
    print_out("{}\n", dump_json(json_of(check)));
  } else {
    print_out("{}", text_of(check));
  }
  return check.fits() ? 0 : 3;
}

void add_check_precision(Verb check) {
  auto options = std::make_shared<PrecisionCheckOptions>();
  Verb verb =
      check.verb("precision",
                 "Measure the precision that each matmul of a step in 8 or 4 bits loses; exit with 3 if one "
                 "is below the recipe's gate",
                 "strata check precision runs/first --set precision.compute=fp8");
  verb.option("RUN.toml", options->inputs, "A configuration, the folder of a run, or texts to train on");
  verb.option("--model", options->model,
              "A checkpoint of a run, RUN@latest or RUN@best, or a model directory with the data of --set")
      .type_name("DIR");
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options] { return run_precision_check(*options); });
}

}  // namespace strata::cli
