// The places in the data of rows of experts, from which random bits follow. Internal to precision_pass.cpp.
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>

#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/experts/experts.h"
#include "program/codes.h"

namespace strata::program {

// Rows of the matmuls of experts: one a token, or one a token–expert pair.
struct ExpertRows {
  const ops::ExpertsAttrs& attrs;
  graph::ValueId ids = graph::kNone, offsets = graph::kNone;
  bool by_pair = false;
};

class ExpertPlaces {
 public:
  // All must outlive it.
  ExpertPlaces(graph::Graph& graph, CodeMaker& codes, int64_t sequence_length, const Words& words)
      : graph_(graph), codes_(codes), sequence_length_(sequence_length), words_(words) {}

  // Remembers how tokens come to the ranks of their experts. Before of().
  void note(const graph::Node& node);

  // Adds the nodes that make places of rows, [rows, 2]: of tokens, as they were sent to this rank, the sample and the
  // place there; of pairs, the expert's number too (ops/pair_places). So no bit depends on the rank or the pass.
  graph::ValueId of(const ExpertRows& rows, const Marks& marks);

 private:
  struct Sent {
    graph::ValueId way, weights;
    ops::DispatchAttrs attrs;
  };
  graph::ValueId of_tokens(const ExpertRows& rows, const Marks& marks);

  graph::Graph& graph_;
  CodeMaker& codes_;
  const int64_t sequence_length_;
  const Words& words_;
  std::unordered_map<graph::ValueId, Sent> sent_;  // by offsets
  // By ids, whether of pairs, phase and chunk.
  std::map<std::tuple<graph::ValueId, bool, graph::Phase, int32_t>, graph::ValueId> made_;
};

}  // namespace strata::program
