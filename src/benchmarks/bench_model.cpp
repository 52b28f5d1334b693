#include "benchmarks/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>

#include "base/clock.h"
#include "base/parallel.h"
#include "benchmarks/bench_run.h"
#include "checkpoint/weights.h"
#include "comm/world.h"
#include "config/objective.h"
#include "config/plan.h"
#include "config/precision.h"
#include "device/cpu/probes.h"
#include "device/open/open.h"
#include "models/parametrization.h"
#include "program/initialize.h"
#include "program/update.h"

namespace strata::benchmarks {

using program::Segment;

namespace {

std::shared_ptr<device::Device> device_of_processor(int threads) {
  set_compute_threads(threads);
  flush_denormals();
  return device::open(device::Kind::kCpu, 0, threads);
}

}  // namespace

std::string BenchCase::name() const {
  return fmt::format("{} {}x{} {}", label, sequences, sequence_length,
                     precision ? precision->recipe.name : name_of(dtype));
}

BenchCase preset_case(const std::string& preset, int64_t sequences, int64_t sequence_length, DType dtype) {
  return case_of_sets({fmt::format("model.preset=\"{}\"", preset),
                       fmt::format("training.micro_batch_size={}", sequences),
                       fmt::format("training.global_batch_size={}", sequences),
                       fmt::format("training.sequence_length={}", sequence_length),
                       fmt::format("precision.compute=\"{}\"", dtype == DType::kBF16 ? "bf16" : "fp32")});
}

BenchCase case_of_sets(const std::vector<std::string>& sets) {
  const auto plan = config::make_plan(
      bench_config(sets, {}),
      {.files = posix_file_system(), .data = config::PlanOptions::Data::kNone, .places = {}});
  const config::RunConfig& config = plan->config;
  BenchCase bench;
  bench.model = plan->model;
  bench.label = config.model.preset.empty() ? std::string(bench.model.family->name) : config.model.preset;
  bench.sequences = *config.training.micro_batch_size;
  bench.sequence_length = config.training.sequence_length;
  bench.row = config::row_shape(config, bench.model);
  bench.dtype = config::activation_dtype(config);
  bench.precision = config::precision_of(config, bench.model);
  bench.sets = sets;
  bench.sets.push_back(fmt::format("training.micro_batch_size={}", bench.sequences));
  bench.sets.push_back(fmt::format("training.global_batch_size={}", bench.sequences));
  return bench;
}

BenchModel::BenchModel(const BenchCase& bench, int threads)
    : BenchModel(bench, device_of_processor(threads)) {}

BenchModel::BenchModel(const BenchCase& bench, const std::shared_ptr<device::Device>& device) : case_(bench) {
  const double begin = monotonic_seconds();
  program::CompileOptions options;
  options.model = case_.model;
  options.activations = bench.dtype;
  options.precision = bench.precision;
  options.rule_of = [](const std::string&, graph::ParameterRole role) {
    return optim::one_rule({.weight_decay = models::is_matrix(role) ? 0.1 : 0.0});
  };
  options.target = device->target();
  auto set = program::compile({{.kind = program::Kind::kTrain,
                                .sequences = bench.sequences,
                                .sequence_length = bench.row.tokens,
                                .encoder_length = bench.row.encoder_length,
                                .target_share = bench.row.target_share}},
                              options);
  const double compiled = monotonic_seconds();
  compile_seconds_ = compiled - begin;
  executor_ = std::make_unique<program::Executor>(std::move(set), device);
  program::initialize_weights(*executor_, 1);
  executor_->run(0, {Segment::kEncode});
  fill_batch();
  fill_seconds_ = monotonic_seconds() - compiled;
  reset();
}

// One document per sequence, with the same share of targets as a run.
void BenchModel::fill_batch() {
  const auto fill = [&](Column column, int64_t places, auto value_of) {
    std::vector<int32_t> values(static_cast<size_t>(case_.sequences * places));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(value_of(static_cast<int64_t>(i)));
    executor_->upload_column(0, column, 0, values);
  };
  // A multiplicative walk over the vocabulary: all tokens are about equally frequent.
  const auto token = [&](int64_t i) { return i * 7919 % case_.model.vocab_size; };
  const auto targets_before = [&](int64_t i) {
    return std::floor(static_cast<double>(i) * case_.row.target_share);
  };
  const auto zero = [](int64_t) { return 0; };
  fill(Column::kTokens, case_.row.tokens, token);
  fill(Column::kTargets, case_.row.tokens,
       [&](int64_t i) { return targets_before(i + 1) > targets_before(i) ? token(i + 13) : -1; });
  fill(Column::kPositions, case_.row.tokens, [&](int64_t i) { return i % case_.row.tokens; });
  fill(Column::kSamples, 1, [](int64_t i) { return i; });
  fill(Column::kKvBegin, case_.row.tokens, zero);
  fill(Column::kEncoderTokens, case_.row.encoder_length, token);
  fill(Column::kEncoderKvBegin, case_.row.encoder_length, zero);
  fill(Column::kCrossKvBegin, case_.row.tokens, zero);
}

double BenchModel::flops() const {
  return models::training_flops_per_token(case_.model, case_.sequence_length, case_.row.tokens,
                                          case_.row.target_share) *
         static_cast<double>(tokens());
}

double BenchModel::step() {
  const double begin = monotonic_seconds();
  ++timed_;
  write_hyper(*executor_);
  executor_->run_script(0);
  executor_->read<double>("loss_sum");  // waits for an asynchronous device
  return monotonic_seconds() - begin;
}

program::StepTotal BenchModel::measured(By by) const {
  program::StepTotal total;
  std::map<std::string, program::FamilyTotal> families;
  for (const program::Action& action : program().script) {  // has one micro-batch
    const auto& timings = executor_->timings(0, {action.segment, action.chunk}, action.accumulates);
    for (size_t i = 0; i < timings.size(); ++i) {
      const program::Instruction& instruction = program().list_of(action)[i];
      const graph::Node& node = program().node_of(instruction);
      const graph::Cost cost =
          program().is_expected(instruction) ? node.op->cost({program().graph, node}) : graph::Cost{};
      const std::string name(by == By::kOp ? node.op->name : node.op->family);
      program::FamilyTotal& family = families[name];
      family.family = name;
      ++family.instructions;
      family.flops += cost.flops;
      family.bytes += cost.bytes;
      const double seconds = timings[i].seconds / static_cast<double>(std::max<int64_t>(1, timed_));
      family.seconds += seconds;
      total.flops += cost.flops;
      total.bytes += cost.bytes;
      total.seconds += seconds;
    }
  }
  for (auto& [name, family] : families) total.families.push_back(std::move(family));
  std::sort(total.families.begin(), total.families.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return total;
}

void BenchModel::reset() {
  executor_->reset_timings();
  timed_ = 0;
}

void write_hyper(program::Executor& executor) {
  program::write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-4f});
  program::start_loss_scale(executor);
}

hardware::DeviceSpec measured_rank(int ranks, int threads) {
  if (ranks == 1) return device::open(device::Kind::kCpu, 0, threads)->measured(posix_file_system(), true);
  hardware::DeviceSpec spec;
  std::atomic<int> left{0};  // the last turn that a rank did not want
  comm::run_local_ranks(ranks, [&](comm::World& world) {
    int turns = 0;
    const auto together = [&](bool goes_on) {
      ++turns;
      if (!goes_on) left = turns;
      world.barrier();
      return left != turns;
    };
    const auto one = device::measured_together(threads, together);
    if (world.rank() == 0) spec = one;
  });
  device::measure_exchange(spec);
  return spec;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace strata::benchmarks
