// Statistics of a step as instructions of its program: which values are measured, and where. They are in
// every training program; in a step in which their group is off, each takes a load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace strata::program {

class Executor;

// Bits of the mask that turn statistics on.
enum class StatisticsGroup : uint8_t {
  kWeights,      // gradients, weights and their updates
  kActivations,  //
  kNoise,        // gradients of the first micro-batch
};
constexpr int64_t bit_of(StatisticsGroup group) {
  return int64_t{1} << static_cast<int>(group);
}

enum class Watched : uint8_t {
  kGradient,       // of a parameter: the sum over the tokens of a step, before clipping
  kFirstGradient,  // the same of the first micro-batches, one for each of Statistic::parts
  kWeight,         // a parameter after the update; rows of the head
  kUpdate,         // the change of some evenly spaced elements of a parameter
  kStream,         // the residual stream after a layer
  kActivation,     // the input of the last matmul of a feed-forward layer
  kQueries,        // as attention reads them; rows are those of a head
  kKeys,           //
  kHidden,         // the input of the head; rows are tokens
};
std::string_view name_of(Watched what);

// The statistic that is the program's metric kStatistics of its index here.
struct Statistic {
  Watched what = Watched::kGradient;
  StatisticsGroup group = StatisticsGroup::kWeights;
  int32_t layer = graph::kNone;  // the model's block; kNone outside
  std::string tensor = {};       // the parameter; empty: none
  double elements = 0;           // of the whole tensor
  bool is_matrix = false;        // the tensor
  bool is_head = false;          // the tensor makes logits
  double parts = 1;              // kFirstGradient: of a step's tokens, of which each term of the sums is one
  double scale = 1;              // kQueries: of the scores
};

struct StatisticsOptions {
  int64_t micro_batches = 1;
  int64_t width = 0;          // of the residual stream
  int32_t last_layer = 0;     // of the model
  bool is_sequential = true;  // is_sequential(script)
};
// Adds the instructions to a rank's graph, for which localize() was called. Finds values by ops and roles. A value that is not on this rank has none. Norms of parameters also give a digest of their
// bits, the metric kWeightsDigest; if other ranks hold the same, those of
// gradients kGradientsDigest, and kUsedWeightsDigest is of the weights before the update.
std::vector<Statistic> statistics_pass(graph::Graph& graph, const StatisticsOptions& options);

// Turns groups on for the steps that follow. Initially all are off.
void write_statistics_mask(const Executor& executor, size_t program, int64_t mask);

}  // namespace strata::program
