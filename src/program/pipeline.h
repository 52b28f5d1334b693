// A pipeline as a program sees it: which stages of the model this rank has, in which order it works on them,
// and what passes between it and others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layers/layers.h"
#include "parallel/schedule.h"
#include "parallel/stage_layout.h"
#include "program/draft.h"

namespace strata::program {

// Alike on all ranks but for `rank`.
struct Pipeline {
  parallel::Schedule schedule;   // of a step, proven (parallel/check.h)
  parallel::StageLayout layout;  // by stage
  parallel::ModelParts parts;
  int32_t rank = 0;          // this one's place on the pipeline axis
  int32_t send_buffers = 1;  // messages in flight from one rank to another (parallel/messages.h)

  std::vector<int32_t> stages() const { return schedule.stages_of(rank); }
  bool splits_backward() const;
};

// What a rank's graph is built of, by chunk.
std::vector<layers::LayerRange> layer_ranges_of(const Pipeline& pipeline);

// The ranks of the pipeline that share a table, ascending: an embedding, a head, distances. Empty for other
// parameters, which one stage has.
std::vector<int32_t> holders_of(const Pipeline& pipeline, graph::ParameterRole role, bool of_encoder);
// All sets of several ranks that share parameters, each once, in an order that is the same on all ranks.
std::vector<std::vector<int32_t>> sharing_ranks(const Pipeline& pipeline);

// The values of a training program on all stages, as a rank that had them all would hold them.
struct AllStages {
  graph::Graph graph;  // localized
  std::vector<optim::State> states;
  // By parameter: the places on the pipeline axis that have it, ascending.
  std::map<std::string, std::vector<int32_t>> holders;
};
AllStages all_stages(const ProgramSet& set);

// The actions of this rank in a step: B of the schedule is I and W where programs have them apart.
Script order_of(const Pipeline& pipeline, Backward backward);

// By action of this rank's schedule: where its first action is in order_of(); at the end, how many there are.
std::vector<int32_t> places_in_order(const Pipeline& pipeline, Backward backward);

// Assigns pools to the messages of a program and determines before which actions its receives start. Returns
// the addresses of their values in the pools, by value; empty if there are no messages.
std::vector<Operand> place_messages(Draft& draft, Pools& pools);

}  // namespace strata::program
