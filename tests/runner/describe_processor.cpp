// Writes made-up rates of this processor to the cache of measured ones ($XDG_CACHE_HOME), for each limit of
// its instruction sets. Otherwise a program measures for a minute when it first starts. Tests neither wait
// for that nor depend on the speed of the machine.
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/child_process.h"
#include "hardware/device_spec.h"
#include "kernels/cpu/measure.h"
#include "ops/op_cases.h"

namespace strata {
namespace {

void describe(int threads) {
  hardware::DeviceSpec device = cpu::describe_device(threads);
  // Higher than any step reaches: a step that exceeds the peak would trigger another measurement.
  device.gemm_flops[hardware::Precision::kFp32] = 4e12 * threads;
  device.gemm_flops[hardware::Precision::kBf16] =
      (hardware::bf16_is_fast(device) ? 2 : 0.5) * device.gemm_flops[hardware::Precision::kFp32];
  device.memory_bytes_per_s = 20e9;
  device.cache_bytes_per_s = 100e9;
  device.kept_bytes = device.l3_bytes;
  std::set<std::string> ops;
  for (const device::OpCase& one : device::op_cases()) ops.emplace(one.op->name);
  for (const std::string& op : ops) {
    for (const char* dtype : {"f32", "bf16"}) {
      for (const bool cold : {false, true}) device.rates.push_back({op, dtype, 50e9 * threads, 10e9, cold});
    }
  }
  device.source = "measured";
  device.date = "2026-01-01T00:00:00Z";
  if (!hardware::save_cached_device(posix_file_system(), device))
    throw WorldError("cannot write the figures");
}

}  // namespace
}  // namespace strata

int main() {
  // A process reads its limit only once.
  for (const char* limit : {"", "baseline", "avx2", "avx512", "avx512_bf16"}) {
    const int code = strata::exit_code_of_child([&] {
      if (*limit != '\0') ::setenv(strata::hardware::kIsaLimitVariable, limit, 1);
      for (int threads = 1; threads <= strata::available_processors(); ++threads) strata::describe(threads);
    });
    if (code != 0) return 1;
  }
  return 0;
}
