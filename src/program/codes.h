// Makes codes and scales of tensors in a graph. Internal to precision_pass.cpp.
//
// A layout must not change rounding. Greatest magnitudes that several ranks share are gathered and reduced; random bits
// follow from the places of tokens in the data; a cut inside blocks throws ConfigError, which names the tensor and what
// would fit.
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

// Marks of nodes that are added to a graph.
struct Marks {
  graph::Phase phase = graph::Phase::kForward;
  int32_t layer = graph::kNone, chunk = 0;
};
void mark(graph::Graph& graph, const Marks& marks);

// Codes of a tensor in one direction, as a matmul reads them.
struct Codes {
  ops::ScaledOperandAttrs attrs;
  graph::ValueId codes = graph::kNone, scales = graph::kNone, greatest = graph::kNone;
  // Of stochastic rounding, along rows: its stream, the places of rows, and the per-rank constants if ranks cut columns.
  int64_t stream = 0;
  graph::ValueId places = graph::kNone, rank = graph::kNone;
};
enum class Direction : uint8_t { kRows, kColumns };

// All codes of a tensor.
struct QuantizedTensor {
  Codes rows, columns;
  graph::ValueId found = graph::kNone;  // as Handling::finds_greatest asks for it: what each rank has found
  Codes read(const quantize::QuantizedOperand& operand, Direction direction) const;
};

// Rounding of an operand beyond its rules.
struct Handling {
  bool transforms_columns = false, stochastic = false;
  graph::ValueId places = graph::kNone;  // of rows, for stochastic rounding; kNone: rows are tokens
  // From which a delayed rule takes the scale, and whether the tensor's own greatest magnitude is to be found.
  graph::ValueId history = graph::kNone;
  bool finds_greatest = false;
};

class CodeMaker {
 public:
  // `recipe_name`: for messages. `sequence_length`: of the rows of activations. All must outlive it.
  CodeMaker(graph::Graph& graph, std::string_view recipe_name, int64_t sequence_length, const Words& words)
      : graph_(graph), recipe_name_(recipe_name), sequence_length_(sequence_length), words_(words) {}

  // Adds the nodes that quantise x along rows, along columns, or both. The graph keeps the marks. In Phase::kEncode the
  // results outlive the step, named after x.
  QuantizedTensor make(graph::ValueId x, const quantize::QuantizedOperand& operand, bool rows, bool columns,
                       const Marks& marks, const Handling& handling = {});

  // Adds a node that finds the greatest magnitude of what each rank has of x, [ranks, 1].
  graph::ValueId found_in(graph::ValueId x, const quantize::ScaleRule& rule, const Marks& marks);
  // The greatest of what ranks have found, [1, 1] for each: values alike travel together.
  std::vector<graph::ValueId> greatest_of_ranks(std::vector<graph::ValueId> found);

  // Each row's sample and place in it, placed as rows of x are.
  graph::ValueId places_of_rows(graph::ValueId x, const Marks& marks);

 private:
  // Codes and scales of experts are cut between experts, as the weights.
  void distribute(graph::ValueId id, const std::vector<graph::Axis>& axes);
  // How many ranks have a part of a greatest magnitude of x. `own_dim`: the dimension that is the result's rows.
  int64_t parts_of(graph::ValueId x, const std::optional<quantize::ScaleRule>& rule, int own_dim) const;
  // The greatest magnitudes that the rules need along rows and along columns, of all ranks.
  std::pair<graph::ValueId, graph::ValueId> greatest_of(graph::ValueId x, const ops::QuantizeAttrs& attrs);
  // A cut must leave every block whole. `first`: the dimension of x that is dimension 0 of the rule's matrix.
  void check_cuts(graph::ValueId x, const quantize::ScaleRule& rule, int first) const;
  void check_experts(int64_t rows, int64_t extent, const graph::Value& value) const;
  void check_part(int64_t part, int64_t extent, graph::Axis axis, const graph::Value& value,
                  std::string_view of) const;

  graph::Graph& graph_;
  const std::string_view recipe_name_;
  const int64_t sequence_length_;
  const Words& words_;
  std::map<std::tuple<bool, bool, int, int32_t>, graph::ValueId> places_;
  std::unordered_map<int32_t, int64_t> streams_;  // in use, by layer: the same on all stages of a pipeline
};

}  // namespace strata::program
