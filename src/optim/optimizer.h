// Optimizers as update graphs, with clipping by global norm. Each has a file of its own: its constants here,
// its states, its op with shape rule, cost and placements there.
//
// Everything that a step's update needs is computed by instructions: the host writes UpdateHyper into the
// step block before the first micro-batch and decides nothing until the update is done. How many updates were
// made is device state, like the optimizers' own states.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "graph/attributes.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "graph/shard.h"

namespace strata::optim {

// Elements whose squares one partial sum holds: norms are reduced in a fixed order, whatever the thread
// count.
inline constexpr int64_t kNormBlock = 1 << 16;

// The learning rate of the step, and what does not change: in the step block, written before each step.
struct UpdateHyper {
  double beta1 = 0.9;  // of AdamW in both its forms
  double beta2 = 0.95;
  double max_grad_norm = 0;  // 0: no clipping
  float lr = 0;
  float eps = 1e-8f;
};
// Bytes of "hyper" and "scalars" in the step block; the kernels' own struct of scalars has at most as many.
inline constexpr int64_t kScalarBytes = 64;
static_assert(sizeof(UpdateHyper) <= kScalarBytes);

// Loshchilov and Hutter 2019, PyTorch's order of operations. States m and v.
struct AdamW {
  bool operator==(const AdamW&) const = default;
};

// Jordan et al. 2024: momentum made orthogonal by Newton and Schulz, each matrix (a segment of a fused
// parameter) by itself. State momentum.
enum class MuonScale : uint8_t {
  kOriginal,      // √max(1, rows / columns)
  kMatchRmsAdamW  // 0.2 √max(rows, columns): learning rates and decay of AdamW hold (Liu et al. 2025)
};
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5;
  MuonScale scale = MuonScale::kOriginal;
  bool operator==(const Muon&) const = default;
};

// Chen et al. 2023. State momentum.
struct Lion {
  double beta1 = 0.9, beta2 = 0.99;
  bool operator==(const Lion&) const = default;
};

// Shazeer and Stern 2018, as torch.optim.Adafactor. States row and column, of a vector variance.
struct Adafactor {
  double beta2_decay = -0.8;
  double eps1 = 0x1p-23;  // fp32's, as PyTorch has it
  double eps2 = 1e-3;
  double clip_threshold = 1;
  bool operator==(const Adafactor&) const = default;
};

// AdamW with moments of one byte, a scale for each block of 256 elements in the order of memory, as
// bitsandbytes (Dettmers et al. 2022). States m and v with m_scale and v_scale; tensors below min_elements
// are AdamW's.
struct AdamW8Bit {
  int64_t min_elements = 4096;
  bool operator==(const AdamW8Bit&) const = default;
};

using Optimizer = std::variant<AdamW, Muon, Lion, Adafactor, AdamW8Bit>;
std::string_view name_of(const Optimizer& optimizer);  // "adamw", "muon", "lion", "adafactor", "adamw8bit"

struct UpdateRule {
  double weight_decay = 0;
  double lr_scale = 1;
  Optimizer optimizer = AdamW{};
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
  // that the share of a weight that a step takes away stays the same. Empty: all 1. AdamW alone has them.
  std::vector<double> part_scales = {};
};
inline ParameterRule one_rule(const UpdateRule& rule) {
  return {{{0, rule}}, {}};
}
using RuleOf = std::function<ParameterRule(const std::string& name, graph::ParameterRole role)>;

// How the elements of a state belong to the rows of the parameter that it is for.
enum class StateLayout : uint8_t {
  kElements,  // as the parameter's own
  kRows,      // one for each row
  kTensor,    // of a whole tensor, in an order of its own
};

// A state, named "NAME.PARAMETER", or "NAME.PARAMETER[FIRST:END]" where it is for some of the rows. The value
// may be that of several: of the rows of each of the ranks among which parts of the parameter are dealt out.
struct State {
  graph::ValueId parameter = graph::kNone;
  graph::ValueId value = graph::kNone;
  std::string name;  // "m", "momentum", …
  int64_t first_row = 0, rows = 0;
  StateLayout layout = StateLayout::kElements;
  int64_t part = 0, parts = 1;  // which of the value's equal parts it is
};

struct UpdateGraph {
  graph::ValueId hyper = graph::kNone;       // u8[kScalarBytes], an UpdateHyper
  graph::ValueId updates = graph::kNone;     // i64[1]: updates made so far; a skipped step makes none
  graph::ValueId scalars = graph::kNone;     // u8[kScalarBytes], what the update kernels read
  graph::ValueId grad_norm = graph::kNone;   // f32[1]: norm of the mean gradient, before clipping
  graph::ValueId param_norm = graph::kNone;  // f32[1]: norm of all parameters after the update
  std::vector<State> states;                 // all begin as zeros
};

// Of a parameter of the graph, which may be part of the one that rules speak of.
ParameterRule rule_for(const graph::Graph& graph, const graph::Parameter& parameter, const RuleOf& rule_of);

// How shards of a parameter are cut: the rows that they come in multiples of, and which of its segments are
// cut as one, since a state of theirs has blocks that end where these together do (8-bit AdamW's, of a tensor
// of several segments). The parameter's placements say that it is cut.
graph::Padding shard_padding(const graph::Graph& graph, const ParameterRule& rule,
                             const graph::Value& parameter);

// Appends the update of every parameter of a differentiated graph. `token_count` is the accumulator by which
// the summed gradients are divided. A step without a valid target, or whose norm is not finite, is skipped:
// parameters and states stay as they were.
UpdateGraph add_update(graph::Graph& graph, graph::ValueId token_count, const RuleOf& rule_of);

extern const graph::OpDef kSumOfSquares;  // (x) → partials f64[ceil(n / kNormBlock)]
extern const graph::OpDef
    kUpdateScalars;  // (hyper, token_count, updates, partials…) → scalars, grad_norm, updates
extern const graph::OpDef kRootOfSum;  // (partials…) → f32[1]
// (partials…) → f64[1]: what ranks have of a norm, before it is added up over them
extern const graph::OpDef kSumOfPartials;

// Of every optimizer's op. Where a node is for some rows of a parameter of `of_rows` rows, these say which,
// and where they lie in its states; rows 0: all of them.
struct UpdateAttrs {
  UpdateRule rule;  // weight_decay and lr_scale as the kernel applies them
  int64_t first_row = 0, rows = 0, of_rows = 0;
  int64_t state_row = 0, state_rows = 0;
  // Above 1: so many ranks have `of_rows` rows each, these among them, with states of their own; 1 behind
  // localize().
  int64_t dealt = 1;
  bool operator==(const UpdateAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// (master, states…, gradient, scalars) → master, states…, over their inputs.
extern const graph::OpDef kAdamW;            // states m, v
extern const graph::OpDef kLion;             // momentum
extern const graph::OpDef kMuon;             // momentum
extern const graph::OpDef kAdafactor;        // row f32[rows], column f32[columns]
extern const graph::OpDef kAdafactorVector;  // variance
extern const graph::OpDef kAdamW8Bit;        // m u8, m_scale f32[blocks], v u8, v_scale f32[blocks]

// Muon of parameters in shards: each matrix of a stack is made orthogonal by one rank.
struct MuonStackAttrs {
  struct Slot {
    int64_t operand = -1;  // whose rows they are, of those that the node has; -1: the slot is empty
    UpdateAttrs update;
    bool operator==(const Slot&) const = default;
  };
  std::vector<Slot> slots;  // one a rank
  bool operator==(const MuonStackAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};
struct NewtonSchulzAttrs {
  int64_t steps = 5;
  bool operator==(const NewtonSchulzAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("steps", steps); }
};
// (momentum, gradient, …, scalars) → momentum…, over their inputs, stack f32[slots, rows, columns] of what is
// to be made orthogonal; zeros in empty slots, and everywhere when the step is skipped
extern const graph::OpDef kMuonMomentum;
extern const graph::OpDef kNewtonSchulz;  // (stack) → stack: each matrix made orthogonal; zeros stay zeros
extern const graph::OpDef kMuonApply;     // (master…, stack, scalars) → master…, over their inputs

// Adafactor of a tensor in shards: what is the whole tensor's goes over the ranks as sums.
struct AdafactorShardAttrs {
  UpdateAttrs update;
  int64_t rows = 0;  // of the whole tensor, on every rank
  bool operator==(const AdafactorShardAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};
// (master, row, gradient, scalars) → row, over its input, sums f64[columns + 2]: of the squared gradients of
// each column, of the squared weights, of the new row.
// Of a vector (master, variance, gradient, scalars) → variance, sums f64[2]: of squared weights and updates.
extern const graph::OpDef kAdafactorSums;
// (row, column, gradient, sums, scalars) → column, over its input, f64[1]: the sum of squared updates
extern const graph::OpDef kAdafactorColumns;
// (master, row or variance, column?, gradient, sums, squares?, scalars) → master, over its input
extern const graph::OpDef kAdafactorApply;

// Which rows or columns of a tensor the ranks of a mesh hold: each of its parts is cut along some axes, one
// after the other.
struct TensorShare {
  struct Part {
    int64_t size = 0;
    std::vector<int64_t> shares = {};  // by axis: what a rank has room for of what the axes before leave it
    int64_t room() const { return shares.empty() ? size : shares.back(); }
    bool operator==(const Part&) const = default;
  };
  std::vector<graph::Axis> axes = {};
  std::vector<Part> parts = {};
  int64_t size() const;
  bool operator==(const TensorShare&) const = default;
};
// What the rank of these coordinates holds of a part, counted from the part's begin; without allocating.
graph::Span held_of_part(const TensorShare& share, size_t part, const graph::Coordinates& rank);

// 8-bit AdamW of a tensor whose blocks ranks share. Scales lie on every rank.
struct AdamW8BitShardAttrs {
  UpdateAttrs update;
  TensorShare rows = {}, columns = {};  // of the whole tensor
  std::vector<graph::Axis> axes = {};   // that cut it
  std::vector<int64_t> ranks = {};      // their sizes; 1 behind localize()
  int64_t blocks() const;
  bool operator==(const AdamW8BitShardAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};
// (m, m_scale, v, v_scale, gradient, scalars, rank) → largest f32[ranks…, 2 · blocks]: of the new moments m
// and then v of each block, as far as a rank has it; zeros when the step is skipped
extern const graph::OpDef kAdamW8BitLargest;
// (master, m, m_scale, v, v_scale, gradient, scalars, rank, largest) → master, m, m_scale, v, v_scale, over
// their inputs, with what all ranks have found
extern const graph::OpDef kAdamW8BitShard;

// The rows of a parameter that a node updates, and the first of them in its states. `parameter` is the one
// that the attributes speak of, or an equal share of each of its parts.
struct RowRange {
  int64_t first = 0, rows = 0;
  int64_t state_first = 0, state_rows = 0;  // of all rows that the states are for
};
RowRange row_range(const UpdateAttrs& attrs, const Shape& parameter);

}  // namespace strata::optim
