#include "hardware/roofline.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace strata::hardware {
namespace {

// Work per second at an arithmetic intensity, between the op's probes on a logarithmic scale.
double interpolated(std::vector<std::pair<double, double>>& points, double intensity) {
  std::sort(points.begin(), points.end());
  if (intensity <= points.front().first) return points.front().second;
  for (size_t i = 1; i < points.size(); ++i) {
    if (intensity > points[i].first) continue;
    const auto [x0, y0] = points[i - 1];
    const auto [x1, y1] = points[i];
    if (x1 <= x0) return y1;
    const double share = std::log(intensity / x0) / std::log(x1 / x0);
    return y0 * std::pow(y1 / y0, share);
  }
  return points.back().second;
}

double cache_bandwidth(const DeviceSpec& device) {
  return device.cache_bytes_per_s > 0 ? device.cache_bytes_per_s : device.memory_bytes_per_s;
}

// Seconds with all operands in one place; negative when the op was not measured.
double measured_seconds(const DeviceSpec& device, std::string_view op, std::string_view dtype,
                        const Work& work, bool cold) {
  const double peak = device.gemm_flops[precision_of(dtype)];
  const double bandwidth = cold ? device.memory_bytes_per_s : cache_bandwidth(device);
  std::vector<std::pair<double, double>> flop_points;
  double byte_rate = 0;
  bool arithmetic = false;
  const auto is_of = [&](const FamilyRate& rate, bool adds) {
    return rate.adds == adds && rate.cold == cold && rate.bytes_per_s > 0 && rate.family == op &&
           rate.dtype == dtype;
  };
  const bool adds = work.adds && std::any_of(device.rates.begin(), device.rates.end(),
                                             [&](const FamilyRate& rate) { return is_of(rate, true); });
  for (const FamilyRate& rate : device.rates) {
    if (!is_of(rate, adds)) continue;
    if (rate.flops_per_s > 0) flop_points.emplace_back(rate.flops_per_s / rate.bytes_per_s, rate.flops_per_s);
    byte_rate = std::max(byte_rate, rate.bytes_per_s);
    // The side of the roofline that binds at this shape.
    arithmetic = arithmetic || (peak > 0 && rate.flops_per_s / peak > rate.bytes_per_s / bandwidth);
  }
  if (byte_rate <= 0) return -1;
  const double memory = bandwidth > 0 ? work.bytes / bandwidth : 0;
  const double bytes = work.bytes - work.streamed_bytes;
  if (arithmetic && bytes > 0)
    return std::max(memory, work.flops / interpolated(flop_points, work.flops / bytes));
  return bytes / byte_rate;
}

}  // namespace

int64_t cache_bytes(const DeviceSpec& device) {
  if (device.kept_bytes > 0) return device.kept_bytes;
  return device.l3_bytes > 0 ? device.l3_bytes
                             : std::max<int64_t>(device.l2_bytes * device.threads, int64_t{1} << 20);
}

double expected_seconds(const DeviceSpec& device, std::string_view op, std::string_view dtype,
                        const Work& work, double cold_share) {
  double warm = measured_seconds(device, op, dtype, work, false);
  double cold = measured_seconds(device, op, dtype, work, true);
  if (warm < 0 || cold < 0) {
    const double peak = device.gemm_flops[precision_of(dtype)];
    auto roofline = [&](double bandwidth) {
      return std::max(peak > 0 ? work.flops / peak : 0, bandwidth > 0 ? work.bytes / bandwidth : 0);
    };
    warm = roofline(cache_bandwidth(device));
    cold = roofline(device.memory_bytes_per_s);
  }
  return std::max(device.launch_seconds, (1 - cold_share) * warm + cold_share * cold);
}

}  // namespace strata::hardware
