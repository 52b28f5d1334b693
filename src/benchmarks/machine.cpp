// strata bench peak, attention: the machine's peak rates, and attention relative to them.

#include "base/json.h"
#include "benchmarks/benchmarks.h"
#include "device/open/open.h"

namespace strata::benchmarks {

void bench_peak(BenchContext& context) {
  const auto device = device::open(device::Kind::kCpu, 0, context.threads)->measure_peaks(3.0);
  context.print("\n{}, {} threads, {}\n", device.name, device.threads, device.isa.str());
  context.print("  GEMM peak         {:>8.1f} GFLOP/s fp32, {:.1f} bf16\n",
                device.gemm_flops[hardware::Precision::kFp32] / 1e9,
                device.gemm_flops[hardware::Precision::kBf16] / 1e9);
  context.print("  memory bandwidth  {:>8.1f} GB/s, {:.1f} in the last-level cache\n",
                device.memory_bytes_per_s / 1e9, device.cache_bytes_per_s / 1e9);
  context.result = parse_json<nlohmann::ordered_json>(hardware::to_json(device));
}

void bench_attention(BenchContext& context) {
  const auto machine = device::open(device::Kind::kCpu, 0, context.threads);
  const auto device = machine->measure_peaks(1.0);
  context.print("\n  {:<16} {:>5} {:>12} {:>10} {:>14}\n", "op", "dtype", "FLOP/byte", "GFLOP/s",
                "of GEMM peak");
  for (const hardware::FamilyRate& rate : machine->measure_ops(2.0, "attention")) {
    if (rate.cold) continue;
    const double peak = device.gemm_flops[hardware::precision_of(rate.dtype)];
    context.print("  {:<16} {:>5} {:>12.0f} {:>10.1f} {:>12.1f} %\n", rate.family, rate.dtype,
                  rate.flops_per_s / rate.bytes_per_s, rate.flops_per_s / 1e9, 100 * rate.flops_per_s / peak);
    context.result["rates"].push_back({{"op", rate.family},
                                       {"dtype", rate.dtype},
                                       {"flops_per_byte", rate.flops_per_s / rate.bytes_per_s},
                                       {"flops_per_s", rate.flops_per_s},
                                       {"of_gemm_peak", rate.flops_per_s / peak}});
  }
}

}  // namespace strata::benchmarks
