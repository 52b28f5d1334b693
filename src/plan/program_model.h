// Memory and time of Strata's own programs by formulas: those of the compiled programs of a layout
// (src/program) with the times that price.h expects, without compiling. Rates are the achievable ones of the
// catalogue, without fitted factors. tests/plan/layout_search_test.cpp compares them with compiled programs.
#pragma once

#include "plan/memory_model.h"
#include "plan/step_model.h"

namespace strata::planning {

// Of the fullest rank. Weights are bf16 copies (sharded with ZeRO-3, then none persist), optimizer the fp32
// master weights and both moments; `working` includes the fp32 weights that ZeRO-1 and 2 gather after an
// update, which share memory with activations.
MemoryUse program_memory(const TrainingJob& job, const ClusterSpec& cluster);

StepTime program_time(const TrainingJob& job, const ClusterSpec& cluster);

// Bytes that a rank sends to others in a step, by axis; of each axis on the rank of the pipeline that sends
// most.
struct ProgramTraffic {
  double data = 0;  // replicas and shards
  double tensor = 0;
  double context = 0;
  double pipeline = 0;
  double expert = 0;
};
ProgramTraffic program_traffic(const TrainingJob& job, const ClusterSpec& cluster);

}  // namespace strata::planning
