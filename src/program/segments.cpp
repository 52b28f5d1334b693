#include "program/segments.h"

#include "base/error.h"
#include "graph/op.h"

namespace strata::program {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::Role;
using graph::ValueId;

Segment segment_of(Phase phase, Backward backward) {
  const bool combined = backward == Backward::kCombined;
  switch (phase) {
    case Phase::kSetup:
      return Segment::kSetup;
    case Phase::kForward:
      return Segment::kForward;
    case Phase::kRecompute:
    case Phase::kInputGrad:
      return combined ? Segment::kBackward : Segment::kInputGrad;
    case Phase::kWeightGrad:
      return combined ? Segment::kBackward : Segment::kWeightGrad;
    case Phase::kUpdate:
      return Segment::kUpdate;
    case Phase::kEncode:
      return Segment::kEncode;
  }
  return Segment::kForward;
}

// By node. Backwards, so that the readers of what is recomputed are known.
std::vector<Segment> segments_of_nodes(const Graph& graph, Backward backward) {
  std::vector<Segment> segments(graph.nodes().size());
  std::vector<bool> wanted_before(static_cast<size_t>(graph.value_count()), false);  // by another than W
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    segments[i] = segment_of(node.phase, backward);
    if (node.phase == Phase::kRecompute && backward == Backward::kSplit) {
      bool before = false;
      for (const ValueId output : node.outputs)
        before = before || (output != kNone && wanted_before[static_cast<size_t>(output)]);
      if (!before) segments[i] = Segment::kWeightGrad;
    }
    if (segments[i] == Segment::kWeightGrad) continue;
    for (const ValueId input : node.inputs) {
      if (input != kNone) wanted_before[static_cast<size_t>(input)] = true;
    }
  }
  return segments;
}

}  // namespace

std::array<std::vector<int32_t>, kSegments> split_into_segments(const Graph& graph, Backward backward) {
  const std::vector<Segment> of_node = segments_of_nodes(graph, backward);
  std::array<std::vector<int32_t>, kSegments> segments;
  for (size_t i = 0; i < of_node.size(); ++i) {
    segments[static_cast<size_t>(of_node[i])].push_back(static_cast<int32_t>(i));
    const Node& node = graph.nodes()[i];
    for (const ValueId input : node.inputs) {
      if (input == kNone || !graph::is_temporary(graph.value(input).role)) continue;
      const graph::NodeId producer = graph.value(input).producer;
      STRATA_CHECK(producer != kNone && of_node[static_cast<size_t>(producer)] <= of_node[i],
                   "{} of {} reads {}, which is made later", node.op->name, name_of(of_node[i]),
                   graph.value(input).name);
    }
  }
  return segments;
}

}  // namespace strata::program
