#include "program/segments.h"

#include <algorithm>

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

// By node. Iterates backwards, so that the readers of recomputed values are known.
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

std::vector<NodesOf> split_into_segments(const Graph& graph, Backward backward, int32_t chunks) {
  const std::vector<Segment> of_node = segments_of_nodes(graph, backward);
  std::vector<NodesOf> segments;
  for (const SegmentAt& at : all_segments(chunks)) segments.push_back({at, {}});
  const auto place_of = [&](size_t i) {
    const int32_t chunk = is_of_micro_batch(of_node[i]) ? graph.nodes()[i].chunk : 0;
    const SegmentAt at{of_node[i], chunk};
    const auto found =
        std::find_if(segments.begin(), segments.end(), [&](const NodesOf& one) { return one.at == at; });
    STRATA_CHECK(found != segments.end(), "a node of chunk {}, and there are {}", chunk, chunks);
    return static_cast<size_t>(found - segments.begin());
  };
  std::vector<size_t> places(of_node.size());
  for (size_t i = 0; i < of_node.size(); ++i) {
    places[i] = place_of(i);
    segments[places[i]].nodes.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < of_node.size(); ++i) {
    const Node& node = graph.nodes()[i];
    for (const ValueId input : node.inputs) {
      if (input == kNone || !graph::is_temporary(graph.value(input).role)) continue;
      if (graph.value(input).passage == graph::Value::Passage::kReceived) continue;
      const graph::NodeId producer = graph.value(input).producer;
      STRATA_CHECK(producer != kNone && places[static_cast<size_t>(producer)] <= places[i],
                   "{} of {} reads {}, which is made later", node.op->name, name_of(of_node[i]),
                   graph.value(input).name);
    }
  }
  return segments;
}

}  // namespace strata::program
