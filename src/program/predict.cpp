#include "program/predict.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <set>

namespace strata::program {
namespace {

using graph::kNone;
using graph::ValueId;

// The memory that was touched last, newest first, as far as the cache holds it.
class RecentMemory {
 public:
  explicit RecentMemory(int64_t room) : room_(room) {}

  // Whether the whole of a buffer is still there; it is afterwards the newest.
  bool touch(int64_t address, int64_t bytes) {
    int64_t newer = 0;
    bool held = false;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (newer + bytes > room_) {
        entries_.erase(it, entries_.end());
        break;
      }
      if (it->address == address) {
        held = it->bytes >= bytes;
        entries_.erase(it);
        break;
      }
      newer += it->bytes;
    }
    entries_.push_front({address, bytes});
    return held;
  }

 private:
  struct Entry {
    int64_t address, bytes;
  };
  int64_t room_;
  std::list<Entry> entries_;
};

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

// Seconds with all operands in one place; negative when the op was not measured.
double measured_seconds(const hardware::DeviceSpec& device, std::string_view op, std::string_view dtype,
                        double flops, double bytes, bool cold) {
  const double peak = dtype == "bf16" ? device.gemm_flops_bf16 : device.gemm_flops_f32;
  const double bandwidth = cold ? device.memory_bytes_per_s : device.cache_bytes_per_s;
  std::vector<std::pair<double, double>> flop_points;
  double byte_rate = 0;
  bool arithmetic = false;
  for (const hardware::FamilyRate& rate : device.rates) {
    if (rate.family != op || rate.dtype != dtype || rate.cold != cold || rate.bytes_per_s <= 0) continue;
    if (rate.flops_per_s > 0) flop_points.emplace_back(rate.flops_per_s / rate.bytes_per_s, rate.flops_per_s);
    byte_rate = std::max(byte_rate, rate.bytes_per_s);
    // Which side of the roofline binds at this shape.
    arithmetic = arithmetic || (peak > 0 && rate.flops_per_s / peak > rate.bytes_per_s / bandwidth);
  }
  if (byte_rate <= 0) return -1;
  const double memory = bandwidth > 0 ? bytes / bandwidth : 0;
  if (arithmetic && bytes > 0) return std::max(memory, flops / interpolated(flop_points, flops / bytes));
  return bytes / byte_rate;
}

bool in_steady_step(Kind kind, Segment segment) {
  if (segment == Segment::kSetup) return false;
  return kind == Kind::kTrain || segment != Segment::kEncode;
}

std::vector<FamilyTotal> longest_first(const std::map<std::string_view, FamilyTotal>& totals) {
  std::vector<FamilyTotal> out;
  for (const auto& [name, entry] : totals) {
    out.push_back(entry);
    out.back().family = name;
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace

int64_t cache_bytes(const hardware::DeviceSpec& device) {
  if (device.kept_bytes > 0) return device.kept_bytes;
  return device.l3_bytes > 0 ? device.l3_bytes
                             : std::max<int64_t>(device.l2_bytes * device.threads, int64_t{1} << 20);
}

std::string compute_dtype(const graph::NodeView& view) {
  for (const auto* ids : {&view.node.inputs, &view.node.outputs}) {
    for (const ValueId id : *ids) {
      if (id != kNone && view.graph.value(id).dtype == DType::kBF16) return "bf16";
    }
  }
  return "f32";
}

double expected_seconds(const hardware::DeviceSpec& device, std::string_view op, std::string_view dtype,
                        double flops, double bytes, double cold_share) {
  double warm = measured_seconds(device, op, dtype, flops, bytes, false);
  double cold = measured_seconds(device, op, dtype, flops, bytes, true);
  if (warm < 0 || cold < 0) {
    const double peak = dtype == "bf16" ? device.gemm_flops_bf16 : device.gemm_flops_f32;
    auto roofline = [&](double bandwidth) {
      return std::max(peak > 0 ? flops / peak : 0, bandwidth > 0 ? bytes / bandwidth : 0);
    };
    warm = roofline(device.cache_bytes_per_s);
    cold = roofline(device.memory_bytes_per_s);
  }
  return (1 - cold_share) * warm + cold_share * cold;
}

std::vector<Expected> predict(const Program& program, Segment segment, const hardware::DeviceSpec& device) {
  RecentMemory recent(cache_bytes(device));
  std::vector<Expected> out;
  std::set<ValueId> written;
  for (const Instruction& instruction : program.segment(segment)) {
    const graph::Node& node = program.graph.nodes()[static_cast<size_t>(instruction.node)];
    const graph::NodeView view{program.graph, node};
    const graph::Cost cost = node.op->cost(view);
    Expected expected{cost.flops, cost.bytes, 0, 0};
    double all = 0, cold = 0;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id == kNone) continue;
        const Place& place = program.places[static_cast<size_t>(id)];
        const bool held = recent.touch(place.at.offset * 2 + (place.at.base == Base::kBatch), place.bytes);
        all += static_cast<double>(place.bytes);
        if (!held) cold += static_cast<double>(place.bytes);
        if (ids != &node.outputs || program.graph.value(id).role != graph::Role::kGradient) continue;
        const bool holds = segment == Segment::kLater || written.contains(id);
        written.insert(id);
        if (!holds) continue;
        // An accumulator is read too, and never cleared.
        expected.bytes += cost.cleared_bytes > 0 ? -cost.cleared_bytes : static_cast<double>(place.bytes);
      }
    }
    expected.cold_share = all > 0 ? cold / all : 0;
    expected.seconds = expected_seconds(device, node.op->name, compute_dtype(view), expected.flops,
                                        expected.bytes, expected.cold_share);
    out.push_back(expected);
  }
  return out;
}

StepTotal predict_step(const Program& program, const hardware::DeviceSpec& device) {
  StepTotal total;
  std::map<std::string_view, FamilyTotal> families, ops;
  for (int s = 0; s < kSegments; ++s) {
    const auto segment = static_cast<Segment>(s);
    if (!in_steady_step(program.request.kind, segment)) continue;
    const int64_t times = segment == Segment::kLater ? program.request.micro_batches - 1 : 1;
    if (times == 0) continue;
    const std::vector<Expected> expected = predict(program, segment, device);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto node = static_cast<size_t>(program.segment(segment)[i].node);
      const graph::OpDef& op = *program.graph.nodes()[node].op;
      const auto n = static_cast<double>(times);
      for (FamilyTotal* entry : {&families[op.family], &ops[op.name]}) {
        entry->instructions += times;
        entry->flops += n * expected[i].flops;
        entry->bytes += n * expected[i].bytes;
        entry->seconds += n * expected[i].seconds;
      }
      total.flops += n * expected[i].flops;
      total.bytes += n * expected[i].bytes;
      total.seconds += n * expected[i].seconds;
    }
  }
  total.families = longest_first(families);
  total.ops = longest_first(ops);
  return total;
}

}  // namespace strata::program
