#include "device/cpu/probes.h"

#include <algorithm>
#include <functional>

#include "base/clock.h"
#include "base/log.h"
#include "base/parallel.h"
#include "comm/measure.h"
#include "device/cpu/bindings.h"
#include "device/op_run.h"
#include "hardware/roofline.h"
#include "kernels/cpu/measure.h"
#include "ops/linear/linear.h"
#include "ops/op_cases.h"

namespace strata::device {
namespace {

using graph::ValueId;

constexpr double kMeasureSeconds = 4.0;

// Small numbers of both signs that are valid as bf16 and, two at a time, as fp32.
void fill(const Arena& arena) {
  auto* const words = reinterpret_cast<BF16*>(arena.data());
  parallel_ranges(arena.size() / 2, 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      words[i] = BF16(static_cast<float>(i * 2654435761 % 1021) / 2048.0f - 0.25f);
  });
}

// Indices, and what must be zero.
void fill_contents(const OpRun& run, const OpCase& one, const std::vector<ValueId>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = one.inputs[i];
    if (!operand.content) continue;
    for (int copy = 0; copy < run.copies(); ++copy) fill(operand, run.data(inputs[i], copy));
  }
}

// The median repetition: a step is made of typical ones, not of the best.
double typical_seconds(double budget, const OpRun& run, const std::function<void(int)>& repeat) {
  std::vector<double> seconds;
  repeat(0);
  const double start = monotonic_seconds();
  for (int i = 0; i < 3 || (monotonic_seconds() - start < budget && i < 200); ++i) {
    const double begin = monotonic_seconds();
    repeat((i + 1) % run.copies());
    seconds.push_back(monotonic_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return std::max(seconds[seconds.size() / 2], 1e-9);
}

hardware::FamilyRate measure(const OpCase& one, bool cold, const hardware::DeviceSpec& device, double budget,
                             const Arena& pool, int64_t beyond, const Together& together) {
  OpGraph made = graph_of(one, one.inputs);
  int64_t once = 0;
  for (ValueId id = 0; id < made.graph.value_count(); ++id) once += made.graph.value(id).bytes();
  const int copies =
      cold ? static_cast<int>(std::max<int64_t>(2, beyond / std::max<int64_t>(once, 1) + 1)) : 1;
  OpRun run(std::move(made.graph), cpu_bindings(), device, copies, &pool);
  fill_contents(run, one, made.inputs);
  for (int copy = 0; copy < copies; ++copy) run.encode(copy);
  if (together) together(true);
  const double seconds = typical_seconds(budget, run, [&](int copy) {
    if (one.encoding) {
      run.encode(copy);
    } else {
      run.run(copy);
    }
  });
  graph::Cost cost;
  hardware::FamilyRate rate;
  rate.cold = cold;
  rate.adds = one.adds;
  for (const graph::Node& node : run.graph().nodes()) {
    if ((node.phase == graph::Phase::kEncode) != one.encoding) continue;
    const graph::NodeView view{run.graph(), node};
    const graph::Cost of_node = node.op->cost(view);
    cost.flops += of_node.flops;
    cost.bytes += of_node.bytes - of_node.streamed_bytes;
    if (one.adds) {
      for (const ValueId id : node.outputs)
        if (id != graph::kNone) cost.bytes += graph::accumulator_bytes(of_node, run.graph().value(id));
    }
    rate.family = node.op->name;
    rate.dtype = compute_dtype(view);
  }
  rate.flops_per_s = cost.flops / seconds;
  rate.bytes_per_s = cost.bytes / seconds;
  return rate;
}

}  // namespace

std::vector<hardware::FamilyRate> measure_ops(const hardware::DeviceSpec& device, double seconds,
                                              std::string_view family, const Together& together) {
  std::vector<OpCase> probes = timed_cases();
  // Where bf16 is slow it is not used, and measuring it would take long.
  const auto agreed = [&](bool wish) { return together ? together(wish) : wish; };
  if (agreed(hardware::bf16_is_fast(device))) {
    for (const OpCase& one : timed_cases()) {
      if (auto half = in_bf16(one)) probes.push_back(std::move(*half));
    }
  }
  std::erase_if(probes, [&](const OpCase& one) { return !one.op->name.starts_with(family); });
  // Far beyond the cache: a virtual machine may not report that each core has its own cache. Bounded for
  // machines whose caches are huge.
  const int64_t beyond = std::clamp<int64_t>(6 * std::max(device.l3_bytes, cache_bytes(device)),
                                             int64_t{64} << 20, int64_t{768} << 20);
  const Arena pool(beyond + (int64_t{256} << 20));
  fill(pool);
  // Several times through the list, the best of each: a disturbance that lasts some seconds hits few probes
  // every time. Each takes its fewest repetitions on a slow machine, and there are fewer passes there.
  constexpr int kPasses = 4, kFewestPasses = 2;
  const double budget = seconds / static_cast<double>(2 * kPasses * probes.size());
  std::vector<hardware::FamilyRate> rates(2 * probes.size());
  const double begin = monotonic_seconds();
  for (int pass = 0; pass < kPasses; ++pass) {
    if (!agreed(pass < kFewestPasses || monotonic_seconds() - begin <= 2 * seconds)) break;
    for (size_t i = 0; i < rates.size(); ++i) {
      hardware::FamilyRate rate = measure(probes[i / 2], i % 2 == 1, device, budget, pool, beyond, together);
      if (rate.bytes_per_s > rates[i].bytes_per_s) rates[i] = std::move(rate);
    }
  }
  // A packed layout that this processor does not need takes no work: drop it.
  std::erase_if(rates, [](const hardware::FamilyRate& rate) { return rate.family.empty(); });
  return rates;
}

bool has_op_rates(const hardware::DeviceSpec& device) {
  return std::any_of(device.rates.begin(), device.rates.end(),
                     [](const hardware::FamilyRate& rate) { return rate.family == ops::Linear::def.name; });
}

hardware::DeviceSpec measured_cpu(FileSystem& files, int threads, bool fresh) {
  hardware::DeviceSpec device = cpu::describe_device(threads);
  if (!fresh && hardware::load_cached_device(device) && has_op_rates(device)) return device;
  device = measured_together(threads, {});
  measure_exchange(device);
  hardware::save_cached_device(files, device);
  return device;
}

hardware::DeviceSpec measured_together(int threads, const Together& together) {
  log_info("measuring this machine's kernels once: 10 to 40 s");
  const int before = compute_threads();
  set_compute_threads(threads);
  hardware::DeviceSpec device = cpu::measure_device(threads, kMeasureSeconds / 2);
  device.rates = measure_ops(device, kMeasureSeconds, {}, together);
  set_compute_threads(before);
  return device;
}

void measure_exchange(hardware::DeviceSpec& device) {
  const comm::ExchangeRate exchange = comm::measure_exchange(hardware::cache_bytes(device));
  device.exchange_bytes_per_s = exchange.bytes_per_s;
  device.exchange_cold_bytes_per_s = exchange.cold_bytes_per_s;
  device.exchange_seconds = exchange.startup_seconds;
}

}  // namespace strata::device
