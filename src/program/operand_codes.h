// Makes the codes of a tensor that matmuls under a recipe read: `quantize` nodes, and what these need.
#pragma once

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/scaled_linear/scaled_linear.h"
#include "program/program.h"
#include "quantize/recipe.h"

namespace strata::program {

// Codes of a tensor in one direction. `greatest`: where it is part of the scales.
struct Codes {
  ops::ScaledOperandAttrs attrs;
  graph::ValueId codes = graph::kNone, scales = graph::kNone, greatest = graph::kNone;
};

// All codes of a tensor.
struct TensorCodes {
  Codes rows, columns;
};

// In which directions a tensor is quantised.
struct Directions {
  bool rows = false, columns = false;
};

// Rounding of an operand beyond its rules.
struct Rounding {
  bool transforms_columns = false, stochastic = false;
};

// Marks of the nodes that are added.
struct NodeMarks {
  graph::Phase phase = graph::Phase::kForward;
  int32_t layer = graph::kNone, chunk = 0;
};
void mark(graph::Graph& graph, const NodeMarks& marks);

// A layout must not change rounding. Greatest magnitudes that several ranks share are gathered and reduced; a cut inside
// blocks throws ConfigError, which names the tensor and what would fit.
class CodeMaker {
 public:
  // `recipe`: its name, for messages. `sequence_length`: of the rows of activations.
  CodeMaker(graph::Graph& graph, std::string_view recipe, int64_t sequence_length, const Words& words)
      : graph_(graph), recipe_(recipe), sequence_length_(sequence_length), words_(words) {}

  // Codes of x, where `marks` say. In phase kEncode they are kept as x is.
  TensorCodes make(graph::ValueId x, const quantize::QuantizedOperand& operand, const Directions& directions,
                   const NodeMarks& marks, const Rounding& rounding);

 private:
  void distribute(graph::ValueId id, const std::vector<graph::Axis>& axes);
  graph::ValueId places_of_rows(graph::ValueId x, const NodeMarks& marks);
  std::pair<graph::ValueId, graph::ValueId> greatest_of(graph::ValueId x, const ops::QuantizeAttrs& attrs);
  void check_cuts(graph::ValueId x, const quantize::ScaleRule& rule, int first) const;
  void check_experts(int64_t rows, int64_t extent, const graph::Value& value) const;
  void check_part(int64_t part, int64_t extent, graph::Axis axis, const graph::Value& value,
                  std::string_view of) const;

  graph::Graph& graph_;
  const std::string_view recipe_;
  const int64_t sequence_length_;
  const Words& words_;
  std::map<std::tuple<bool, bool, int, int32_t>, graph::ValueId> places_;
  std::unordered_map<int32_t, int64_t> streams_;  // in use, by layer: the same on all stages of a pipeline
};

}  // namespace strata::program
