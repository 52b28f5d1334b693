// Optimizers as update graphs, with clipping by global norm. Each has a folder; optimizers.h lists them.
//
// Instructions compute everything that a step's update needs: the host writes UpdateHyper into the per-step
// parameters before the first micro-batch and decides nothing until the update is done. The number of updates
// made is device state, like the optimizers' own states.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/attributes.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "graph/shard.h"
#include "optim/storage.h"
#include "optim/update_hyper.h"

namespace strata::optim {

// Elements whose squares one partial sum holds: norms are reduced in a fixed order for any thread
// count.
inline constexpr int64_t kNormBlock = 1 << 16;

// Bytes of "hyper", "scalars", "guard_history" and "decision"; the kernels' own structs have at most these
// sizes.
inline constexpr int64_t kHyperBytes = 512, kScalarBytes = 64;
inline constexpr auto kHistoryBytes = static_cast<int64_t>(sizeof(GuardHistory));
inline constexpr auto kDecisionBytes = static_cast<int64_t>(sizeof(GuardDecision));
static_assert(sizeof(UpdateHyper) <= kHyperBytes);

struct Definition;  // definition.h

// One of optimizers() with its constants: a struct such as AdamW or Muon; its `definition` has the rest.
class Optimizer {
 public:
  Optimizer();  // AdamW
  template <typename Constants>
  requires std::same_as<decltype(Constants::definition), const Definition> Optimizer(Constants constants)
      : definition_(&Constants::definition), constants_(std::move(constants)) {}

  const Definition& definition() const { return *definition_; }
  template <typename Constants>
  bool is() const {
    return definition_ == &Constants::definition;
  }
  template <typename Constants>
  const Constants& as() const {
    return constants_.as<Constants>();
  }
  void describe(graph::AttributeText& to) const { constants_.describe(to); }
  bool operator==(const Optimizer&) const = default;

 private:
  const Definition* definition_;
  graph::Attributes constants_;
};
std::string_view name_of(const Optimizer& optimizer);  // "adamw", "muon", …
// Each of optimizers() with its default constants.
std::vector<Optimizer> standard_optimizers();

struct UpdateRule {
  double weight_decay = 0;
  double lr_scale = 1;
  Optimizer optimizer = {};
  Storage storage = {};  // all rows of a parameter have its weights alike
  bool operator==(const UpdateRule&) const = default;
};

// How one parameter is updated: its rows in order, as the tensors that files know them by.
struct TensorRule {
  int64_t rows = 0;  // 0: all that are left
  UpdateRule rule;
};
struct ParameterRule {
  std::vector<TensorRule> tensors;
  // Further factors on lr_scale, one for each segment of the parameter; its weight decay is divided by it, so
  // that the share of a weight that a step takes away stays the same. Empty: all 1. For optimizers that
  // update elements independently.
  std::vector<double> part_scales = {};
  // Above 0: the gradient of each row of a matrix is limited relative to the row's weights (row_clip.h).
  double row_clip = 0;
};
inline ParameterRule one_rule(const UpdateRule& rule) {
  return {.tensors = {{0, rule}}};
}
using RuleOf = std::function<ParameterRule(const std::string& name, graph::ParameterRole role)>;

// How the elements of a state belong to the rows of the parameter that it is for.
enum class StateLayout : uint8_t {
  kElements,  // as the parameter's own
  kRows,      // one for each row
  kTensor,  // of a whole tensor, in a separate order; if it is of several, checkpoints have it with the first
};

// States that a run may have newly, or no longer, when it continues from a checkpoint: new ones begin as zeros, and change
// nothing until then. Compensations of rounding (storage.h), histories of scales (quantize/delayed.h).
inline constexpr std::array<std::string_view, 4> kOptionalStates{"compensation", "history_input",
                                                                 "history_weight", "history_gradient"};
// `name` is that of a state, by itself or before `separator` in the name of its value or tensor.
bool is_optional_state(std::string_view name, char separator);

// A state, named "NAME.PARAMETER", or "NAME.PARAMETER[FIRST:END]" if it is for some of the rows. The value
// may hold several: for the rows of each rank among which parts of the parameter are distributed.
struct State {
  graph::ValueId parameter = graph::kNone;
  graph::ValueId value = graph::kNone;
  std::string name;  // "m", "momentum", …
  int64_t first_row = 0, rows = 0;
  StateLayout layout = StateLayout::kElements;
  int64_t part = 0, parts = 1;  // which of the value's equal parts it is
};

struct UpdateGraph {
  graph::ValueId hyper = graph::kNone;              // u8[kHyperBytes], an UpdateHyper
  graph::ValueId updates = graph::kNone;            // i64[1]: updates made so far; a skipped step makes none
  graph::ValueId history = graph::kNone;            // u8[kHistoryBytes], a GuardHistory: device state
  graph::ValueId decision = graph::kNone;           // u8[kDecisionBytes], a GuardDecision
  graph::ValueId scalars = graph::kNone;            // u8[kScalarBytes], input of the update kernels
  graph::ValueId embedding_scalars = graph::kNone;  // the same for the kernels of embeddings
  graph::ValueId grad_norm = graph::kNone;          // f32[1]: norm of the mean gradient, before clipping
  graph::ValueId param_norm = graph::kNone;         // f32[1]: norm of all parameters after the update
  std::vector<State> states;                        // all begin as zeros
};

// The rule for a parameter of the graph, which may be part of the parameter that rules refer to.
ParameterRule rule_for(const graph::Graph& graph, const graph::Parameter& parameter, const RuleOf& rule_of);

// How shards of a parameter are cut: the number of rows that their sizes are multiples of, and which of its
// segments are cut as one, since a state of theirs has blocks that end where these together do (8-bit
// AdamW's, of a tensor of several segments). The parameter's placements determine whether it is cut.
graph::Padding shard_padding(const graph::Graph& graph, const ParameterRule& rule,
                             const graph::Value& parameter);

// Appends the update of every parameter of a differentiated graph. `token_count` is the accumulator by which
// the summed gradients and `loss_sum` are divided. A step that the guard skips leaves parameters and states
// unchanged.
// `loss_scale`: f32[1] that all gradients were multiplied by (loss_scale.h); the update writes that of the
// next step to it. kNone: no loss is scaled.
// `score_limit`: above 0: rows of heads whose scores exceeded it are scaled down afterwards (score_clip/score_clip.h).
UpdateGraph add_update(graph::Graph& graph, graph::ValueId token_count, graph::ValueId loss_sum,
                       const RuleOf& rule_of, graph::ValueId loss_scale = graph::kNone,
                       double score_limit = 0);

// Attributes of every optimizer's op. If a node is for some rows of a parameter of `of_rows` rows, these name
// the rows and their position in its states; rows 0: all of them.
struct UpdateAttrs {
  UpdateRule rule;  // weight_decay and lr_scale as the kernel applies them
  int64_t first_row = 0, rows = 0, of_rows = 0;
  int64_t state_row = 0, state_rows = 0;
  // Above 1: this number of ranks have `of_rows` rows each, these among them, with separate states; 1 after
  // localize().
  int64_t distributed = 1;
  // For stochastic rounding: the numbers of the whole parameter, which row of it this one begins with, and the
  // elements that ranks hold; nullptr: all.
  uint32_t stream = 0;
  int64_t whole_row = 0;
  std::shared_ptr<const HeldElements> held = {};
  bool operator==(const UpdateAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// The rows of a parameter that a node updates, and the first of them in its states. `parameter` is the one
// that the attributes speak of, or an equal share of each of its parts.
struct RowRange {
  int64_t first = 0, rows = 0;
  int64_t state_first = 0, state_rows = 0;  // of all rows that the states are for
};
RowRange row_range(const UpdateAttrs& attrs, const Shape& parameter);

// A RowRange in elements.
struct UpdateElements {
  int64_t rows = 0, columns = 0, count = 0;
  int64_t first = 0, state_first = 0;
  UpdateElements() = default;
  UpdateElements(const UpdateAttrs& attrs, const Shape& parameter);
};

}  // namespace strata::optim
