// strata bench precision: steps with recipes in 8 and 4 bits against the same steps without one.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "config/names.h"
#include "device/open/open.h"
#include "ops/linear/linear.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "quantize/recipe.h"

namespace strata::benchmarks {
namespace {

constexpr int kLeastPairs = 3, kMostPairs = 20;
constexpr double kPairSeconds = 6;                   // of steps, per recipe
constexpr int64_t kTriadBytes = int64_t{192} << 20;  // beyond any cache

// A matmul of a linear layer, plain and on codes.
struct PairedMatmul {
  const char* name;
  const graph::OpDef *plain, *scaled;
};
const std::array<PairedMatmul, 3>& matmuls() {
  static const std::array<PairedMatmul, 3> kAll{
      {{"forward", &ops::Linear::def, &ops::ScaledLinear::def},
       {"input_grad", &ops::LinearGradInput::def, &ops::ScaledLinearGradInput::def},
       {"weight_grad", &ops::LinearGradWeight::def, &ops::ScaledLinearGradWeight::def}}};
  return kAll;
}

// Nothing where the step has no such op.
std::optional<program::FamilyTotal> total_of(const program::StepTotal& step, const graph::OpDef& op) {
  for (const program::FamilyTotal& each : step.families)
    if (each.family == op.name && each.seconds > 0) return each;
  return std::nullopt;
}

struct CodedSteps {
  double step = 0, plain_step = 0;  // seconds
  double of_plain = 0;              // the ratio of the two
  double quantize_of_triad = 0;     // the ratio of their rates of memory
  double quantize_share = 0;        // of the step's time
  // Time of a FLOP, against the plain matmul's; 0: the recipe leaves it plain.
  std::array<double, 3> products{};
};

// Medians over pairs of steps that follow each other, which other load disturbs least.
CodedSteps measure_recipe(BenchModel& plain, BenchModel& model, device::Device& device) {
  const auto triad = device.triad_loop(kTriadBytes);
  plain.step();
  model.step();
  std::vector<double> steps, plain_steps, ratios, of_triad, shares;
  std::array<std::vector<double>, 3> products;
  double spent = 0;
  for (int pair = 0; pair < kLeastPairs || (pair < kMostPairs && spent < kPairSeconds); ++pair) {
    plain.reset();
    plain_steps.push_back(plain.step());
    const double triad_rate = static_cast<double>(kTriadBytes) / triad();
    model.reset();
    steps.push_back(model.step());
    ratios.push_back(steps.back() / plain_steps.back());
    spent += steps.back() + plain_steps.back();
    const program::StepTotal by_op = model.measured(BenchModel::By::kOp),
                             plain_by_op = plain.measured(BenchModel::By::kOp);
    if (const auto quantize = total_of(by_op, ops::Quantize::def)) {
      of_triad.push_back(quantize->bytes / quantize->seconds / triad_rate);
      shares.push_back(quantize->seconds / by_op.seconds);
    }
    for (size_t i = 0; i < matmuls().size(); ++i) {
      const auto scaled = total_of(by_op, *matmuls()[i].scaled),
                 unscaled = total_of(plain_by_op, *matmuls()[i].plain);
      if (scaled && unscaled)
        products[i].push_back(scaled->seconds / scaled->flops / (unscaled->seconds / unscaled->flops));
    }
  }
  CodedSteps out{.step = median(steps),
                 .plain_step = median(plain_steps),
                 .of_plain = median(ratios),
                 .quantize_of_triad = median(of_triad),
                 .quantize_share = median(shares)};
  for (size_t i = 0; i < products.size(); ++i) out.products[i] = median(products[i]);
  return out;
}

}  // namespace

void bench_precision(BenchContext& context) {
  const DType fast = fast_dtypes(context.threads).back();
  std::vector<std::string> sets = context.sets;
  if (sets.empty()) {
    sets = {"model.preset=\"llama3-29m\"", "training.micro_batch_size=2", "training.global_batch_size=2",
            "training.sequence_length=512"};
  }
  const auto with = [&](const std::string& compute) {
    return joined(sets, {fmt::format("precision.compute=\"{}\"", compute)});
  };
  const BenchCase bench = case_of_sets(with(std::string(config::spelled(fast))));
  BenchModel plain(bench, context.threads);
  const auto device = device::open(device::Kind::kCpu, 0, context.threads);
  context.print("\n{}: a step with each recipe against one without; codes are computed on the processor\n",
                bench.name());
  context.print("  {:<14} {:>10} {:>10} {:>12} {:>14} {:>9} {:>11} {:>12}\n", "", "step", "of plain",
                "quantize", "of the triad", "forward", "input_grad", "weight_grad");
  auto& json = context.result[bench.name()];
  for (const quantize::Recipe& recipe : quantize::recipes()) {
    const bool has_4_bits = quantize::spec_of(recipe.input.along_rows.format()).bits() == 4;
    std::optional<BenchCase> coded;
    try {
      coded = case_of_sets(
          joined(with(has_4_bits ? "fp4" : "fp8"), {fmt::format("precision.recipe=\"{}\"", recipe.name)}));
    } catch (const ConfigError& error) {
      context.print("  {:<14} {}\n", recipe.name, error.what());
      continue;
    }
    BenchModel model(*coded, context.threads);
    const CodedSteps seconds = measure_recipe(plain, model, *device);
    auto& of_recipe = json["recipes"][std::string(recipe.name)];
    of_recipe = {{"step_seconds", seconds.step},
                 {"plain_step_seconds", seconds.plain_step},
                 {"step_of_plain", seconds.of_plain},
                 {"quantize_share", seconds.quantize_share},
                 {"quantize_of_triad", seconds.quantize_of_triad}};
    std::array<std::string, 3> products;
    for (size_t i = 0; i < matmuls().size(); ++i) {
      const bool is_scaled = seconds.products[i] > 0;
      products[i] = is_scaled ? fmt::format("{:.2f} x", seconds.products[i]) : "plain";
      of_recipe["product_of_plain"][matmuls()[i].name] =
          is_scaled ? nlohmann::ordered_json(seconds.products[i]) : nlohmann::ordered_json();
    }
    context.print("  {:<14} {:>7.1f} ms {:>8.2f} x {:>10.1f} % {:>14.2f} {:>9} {:>11} {:>12}\n", recipe.name,
                  1e3 * seconds.step, seconds.of_plain, 100 * seconds.quantize_share,
                  seconds.quantize_of_triad, products[0], products[1], products[2]);
  }
}

}  // namespace strata::benchmarks
