#include "program/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "program/exchange.h"

namespace strata::program {
namespace {

// Adds what a kernel sends itself to that of the same ranks.
void add_own(const graph::OpRanks& ranks, const graph::Mesh& mesh, std::vector<AxisTraffic>& all) {
  if (ranks.axes.empty() || ranks.sent_bytes == 0) return;
  AxisTraffic own{"experts on ", 1, 1, static_cast<int64_t>(std::llround(ranks.sent_bytes))};
  for (const graph::Axis axis : ranks.axes) {
    own.axis += fmt::format("{}{}", own.ranks > 1 ? " x " : "", name_of(axis));
    own.ranks *= mesh.size(axis);
  }
  const auto same =
      std::find_if(all.begin(), all.end(), [&](const AxisTraffic& one) { return one.axis == own.axis; });
  if (same == all.end()) {
    all.push_back(own);
  } else {
    ++same->calls;
    same->sent_bytes += own.sent_bytes;
  }
}

}  // namespace

std::vector<AxisTraffic> traffic_of(const Program& program, const CompileOptions& options) {
  graph::PerAxis<AxisTraffic> by_axis;
  std::vector<AxisTraffic> of_kernels;
  for (const Action& action : program.script) {
    for (const Instruction& instruction : program.list_of(action)) {
      const graph::Node& node = program.node_of(instruction);
      if (!program.is_expected(instruction)) continue;
      if (node.op->ranks != nullptr) add_own(node.op->ranks({program.graph, node}), options.mesh, of_kernels);
      if (node.op->has_kernel()) continue;
      const NodeExchange exchange = exchange_of(program.graph, node, options.reduce_dtype);
      AxisTraffic& traffic = by_axis[exchange.axis];
      ++traffic.calls;
      traffic.sent_bytes += exchange.sent_bytes;
    }
  }
  for (const Action& action : program.script) {
    for (const Message& message : program.messages) {
      if (!message.sends || message.at != SegmentAt{action.segment, action.chunk}) continue;
      AxisTraffic& traffic = by_axis[graph::Axis::kPipeline];
      ++traffic.calls;
      for (const graph::ValueId value : message.values)
        traffic.sent_bytes += program.graph.value(value).bytes();
    }
  }
  std::vector<AxisTraffic> all;
  for (const graph::Axis axis : graph::kAllAxes) {
    by_axis[axis].axis = name_of(axis);
    by_axis[axis].ranks = options.mesh.size(axis);
    if (by_axis[axis].ranks > 1) all.push_back(std::move(by_axis[axis]));
  }
  all.insert(all.end(), of_kernels.begin(), of_kernels.end());
  return all;
}

}  // namespace strata::program
