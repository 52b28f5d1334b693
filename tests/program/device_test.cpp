// Programs, the devices they are compiled for, and the executors that run them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/error.h"
#include "device/cpu/bindings.h"
#include "fixtures/tiny_program.h"
#include "program/metrics.h"
#include "program/predict.h"

namespace strata::program {
namespace {

using State = std::vector<std::pair<std::string, std::string>>;

State trained(const std::shared_ptr<const ProgramSet>& set, int steps) {
  TinyRun run(set);
  for (int i = 0; i < steps; ++i) run.step();
  return run.state();
}

// A step looks nothing up by name: this test runs one after erasing all names.
TEST(Names, AStepNeedsNone) {
  for (const char* preset : {"llama3-5m", "moe-30m-a10m"}) {
    const auto named = compile({tiny_request(2)}, tiny_options(preset));
    const auto nameless = std::make_shared<ProgramSet>(*named);
    TinyRun wanted(named), run(nameless);
    const Metric loss(run.executor, 0, graph::MetricKind::kLossSum);
    nameless->persistent_index.clear();
    for (Persistent& value : nameless->persistent) value.name.clear();
    for (Program& program : nameless->programs) {
      for (graph::ValueId id = 0; id < program.graph.value_count(); ++id)
        program.graph.value(id).name.clear();
    }
    const Request& request = named->programs[0].request;
    const std::vector<int32_t> values(static_cast<size_t>(2 * request.sequences * request.sequence_length),
                                      3);
    const BatchRows rows{.columns = PerColumn<const int32_t*>(values.data()),
                         .places = {request.sequence_length, 0}};
    for (TinyRun* each : {&wanted, &run}) {
      for (int64_t micro = 0; micro < 2; ++micro)
        each->executor.upload_rows(0, rows, micro * request.sequences, micro);
      each->step();
    }
    EXPECT_EQ(loss.read<double>(), Metric(wanted.executor, 0, graph::MetricKind::kLossSum).read<double>());
    for (size_t i = 0; i < named->persistent.size(); ++i) {
      std::vector<char> a(static_cast<size_t>(named->persistent[i].bytes)), b(a.size());
      wanted.executor.download(named->persistent[i], a.data(), std::ssize(a));
      run.executor.download(nameless->persistent[i], b.data(), std::ssize(b));
      EXPECT_TRUE(a == b) << preset << ", " << named->persistent[i].name;
    }
  }
}

class SharedPrograms : public testing::TestWithParam<DType> {};

// Executors share plans but not the kernels' instances, because a library's handles would race.
TEST_P(SharedPrograms, TwoConcurrentExecutorsMatchOneBitForBit) {
  CompileOptions options = tiny_options("llama3-5m");
  options.activations = GetParam();
  const auto set = compile({tiny_request(2)}, options);
  constexpr int kSteps = 6;
  const State wanted = trained(set, kSteps);
  State concurrent[2];
  {
    std::thread other([&] { concurrent[0] = trained(set, kSteps); });
    concurrent[1] = trained(set, kSteps);
    other.join();
  }
  for (const State& state : concurrent) {
    ASSERT_EQ(state.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(state[i] == wanted[i]) << wanted[i].first << " differs";
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, SharedPrograms, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& one) { return std::string(name_of(one.param)); });

hardware::DeviceSpec described(hardware::IsaFlags isa, int threads) {
  hardware::DeviceSpec spec;
  spec.name = "a described processor";
  spec.isa = isa;
  spec.threads = spec.cores = threads;
  spec.l2_bytes = int64_t{2} << 20;
  spec.l3_bytes = int64_t{512} << 20;
  spec.memory_bytes = int64_t{1536} << 30;
  spec.gemm_flops[hardware::Precision::kFp32] = 4e12;
  spec.gemm_flops[hardware::Precision::kBf16] = 3e13;
  spec.memory_bytes_per_s = 5e11;
  spec.cache_bytes_per_s = 5e12;
  return spec;
}

std::set<std::string> layouts_of(const ProgramSet& set) {
  std::set<std::string> names;
  for (const Persistent& entry : set.persistent) {
    if (entry.role == graph::Role::kEncoded) names.insert(entry.name.substr(entry.name.find('@')));
  }
  return names;
}

TEST(DescribedDevice, IsCompiledForAndPriced) {
  CompileOptions options = tiny_options("llama3-5m");
  options.activations = DType::kBF16;
  const hardware::IsaFlags plain{.avx2 = true};
  const hardware::IsaFlags tiles{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx = true};
  options.target = {described(plain, 4), device::cpu_bindings()};
  const auto old = compile({tiny_request(2)}, options);
  options.target = {described(tiles, 96), device::cpu_bindings()};
  const auto wide = compile({tiny_request(2)}, options);
  // Only the processor with bf16 instructions needs packed weights, whatever machine runs this test.
  EXPECT_TRUE(layouts_of(*old).empty());
  EXPECT_FALSE(layouts_of(*wide).empty());
  for (const auto& set : {old, wide}) {
    const StepTotal total = predict_step(set->programs[0], set->options.target.spec);
    EXPECT_GT(total.seconds, 0);
    EXPECT_GT(total.flops, 0);
  }
}

TEST(DescribedDevice, DoesNotRunOnAnotherOne) {
  CompileOptions options = tiny_options("llama3-5m");
  const auto here = device::make_cpu_device(2);
  options.target = here->target();
  options.target.spec.isa.avx512_bf16 = !options.target.spec.isa.avx512_bf16;
  EXPECT_THROW(Executor(compile({tiny_request(2)}, options), here), InternalError);
  options.target = here->target();
  options.target.spec.threads = 3;
  EXPECT_THROW(Executor(compile({tiny_request(2)}, options), here), InternalError);
}

// The same sizes and the same description produce the same program, down to the byte.
TEST(DescribedDevice, DeterminesThePlan) {
  CompileOptions options = tiny_options("gpt2-124m");
  options.activations = DType::kBF16;
  const auto one = compile({tiny_request(2)}, options);
  set_compute_threads(compute_threads() + 1);  // of this machine, not of the description
  const auto two = compile({tiny_request(2)}, options);
  set_compute_threads(compute_threads() - 1);
  EXPECT_EQ(one->arena_bytes, two->arena_bytes);
  ASSERT_EQ(one->programs[0].operands.size(), two->programs[0].operands.size());
  for (size_t i = 0; i < one->programs[0].operands.size(); ++i)
    EXPECT_EQ(one->programs[0].operands[i].offset, two->programs[0].operands[i].offset) << i;
}

}  // namespace
}  // namespace strata::program
