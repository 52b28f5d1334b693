// The graph: values and the nodes that make them. Small, explicit, in execution order; knows nothing of
// devices.
//
// A value is written by one node, but for accumulators (gradients of parameters, loss and count): they may
// have several writers, which add up in node order; the first writer of a step overwrites.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/attributes.h"
#include "graph/metric.h"
#include "graph/placement.h"
#include "tensor/batch_column.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata::graph {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

// Memory layout of a value's elements. A packed value holds a weight in the layout that the device's GEMM
// engine needs for one role; `layout` names it and `bytes` is its size.
struct Encoding {
  enum class Kind : uint8_t { kPlain, kPacked };
  Kind kind = Kind::kPlain;
  int64_t bytes = 0;
  std::string layout;
};

enum class Role : uint8_t {
  kInput,       // a tensor of the batch
  kParameter,   // fp32 master weight
  kGradient,    // fp32 gradient of a parameter: an accumulator over micro-batches
  kTerms,       // kGradient of one micro-batch: its writers' sum, before it is reduced over ranks
  kMetric,      // loss and count of a step: accumulators too
  kState,       // of the optimizers, and how many updates they made
  kEncoded,     // a parameter in a packed layout, rebuilt after each update
  kConstant,    // filled once, before the first step
  kCache,       // keys and values of earlier tokens, kept between runs of a generating program
  kStep,        // a per-step parameter
  kRank,        // a per-rank constant: differs between ranks that run one program
  kActivation,  // lives within a step
};
std::string_view name_of(Role role);
// Temporary values: made and consumed within a segment, or between the segments of a micro-batch.
constexpr bool is_temporary(Role role) {
  return role == Role::kActivation || role == Role::kTerms;
}

// How a value is cut along an axis that need not divide it: each part into shards of equal size, a multiple
// of `alignment`. All are as large as the first rank's; the remainder after the end of the part is zeros.
struct Padding {
  std::optional<Axis> axis = {};  // this cut is made after those of all other axes
  int64_t alignment = 1;
  std::optional<Axis> uneven = {};  // another axis that need not divide the value, with shares of any size
  // How many neighbouring parts the cut along `axis` takes together as one, in their order: what has one
  // order of memory over several parts is cut where that order allows. Empty: each part is cut by itself.
  std::vector<int64_t> joined = {};
  bool operator==(const Padding&) const = default;
};

// How ranks cut a value beyond its placements.
struct Sharding {
  Padding padding = {};
  // Axes whose ranks each hold some of the parts whole, in order, instead of a shard of every part: experts
  // are distributed in this way.
  std::vector<Axis> distributed_axes = {};
  // For a parameter gathered from its shards: the sharded parameter; kNone for any other value.
  ValueId whole_of = kNone;
  // What localize() found, where a value's shape and segments are a rank's own; else empty.
  Shape global_shape = {};
  std::vector<int64_t> global_segments = {};
};

struct Value {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  Role role = Role::kActivation;
  Encoding encoding = {};
  Placements placements = {};  // decided by the node that writes it first
  // Sizes of the parts that are concatenated along a dimension ([q | k | v], [gate | up]); empty: one part. A
  // shard along that dimension takes its share of every part. The dimension is the last one of activations
  // (-1), the first of parameters and of their gradients and states.
  std::vector<int64_t> segments = {};
  int segments_along = -1;
  NodeId producer = kNone;
  // For activations and their gradients that pass between ranks of a pipeline: whether another rank makes or
  // reads this value.
  enum class Passage : uint8_t { kStays, kReceived, kSent } passage = Passage::kStays;
  Sharding sharding = {};

  int segment_dim() const { return segments_along < 0 ? shape.rank() + segments_along : segments_along; }
  // Sizes of the parts along a dimension.
  std::vector<int64_t> parts(int dim) const {
    return dim == segment_dim() && !segments.empty() ? segments : std::vector<int64_t>{shape[dim]};
  }
  int64_t bytes() const {
    return encoding.kind == Encoding::Kind::kPacked ? encoding.bytes : bytes_of(dtype, shape.elements());
  }
};

enum class Phase : uint8_t {
  kSetup,       // once, before the first step: constant tables
  kForward,     // F
  kRecompute,   // forward again, inside the backward
  kInputGrad,   // I
  kWeightGrad,  // W
  kUpdate,      // once a step, after the last micro-batch
  kEncode,      // packs parameters into the layouts of kernels: after each update and after loading
};
std::string_view name_of(Phase phase);

struct OpDef;

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;   // kNone: an optional input that is not there
  std::vector<ValueId> outputs;  // kNone: an output that was not requested
  Attributes attrs;
  Phase phase = Phase::kForward;
  int32_t layer = kNone;  // index of the model's block; kNone outside
  // The pipeline stage of a node of a micro-batch, counted from 0 among the stages that the graph holds.
  int32_t chunk = 0;
  // The nodes of a loop are consecutive. They repeat as long as the loop's condition is not 0 (never, if it
  // is 0 from the beginning); kNone: once.
  int32_t loop = kNone;
};

// How a parameter is filled at the first start.
struct Init {
  enum class Kind : uint8_t {
    kNormal,
    kTruncatedNormal,  // cut at three standard deviations
    kZeros,
    kOnes,
    kConstant,
    kLogUniform,  // log U(low, high), at least log(kLeast): decay rates of gated delta nets
    kLogCount,    // log(1 … n) by element: decay rates of Mamba-2
    kStepBias,    // softplus⁻¹(max(e^U(log low, log high), value)): what steps of a recurrence start from
  };
  static constexpr double kLeast = 1e-6;
  Kind kind = Kind::kNormal;
  double std = 0.02;         // of the normal before it is cut
  double value = 0;          // of kConstant and kStepBias
  double low = 0, high = 1;  // of kLogUniform and kStepBias
  // A factor for each of the parameter's segments; empty: all 1.
  std::vector<double> part_scales = {};
};

// What a parameter is for. Initialization, µP, weight decay, the choice of an optimizer and FLOPs depend on
// it, never on the name. Code that decides by role lists every role, so that a new one has to be considered
// everywhere.
enum class ParameterRole : uint8_t {
  kEmbedding,        // of tokens; a tied head too
  kPositionTable,    // tables that are looked up: learned positions,
  kTypeTable,        //   token types,
  kDistanceTable,    //   biases of scores by distance
  kHead,             // logits
  kHeadTransform,    // a dense layer before the head
  kAttentionIn,      // [q | k | v]
  kAttentionInBias,  //
  kCrossQuery,       // of attention to an encoder: q,
  kCrossKeyValue,    //   [k | v], which the encoder's tokens pass
  kLatentIn,         // of latent attention: into latents, or into queries that have none,
  kLatentUp,         //   from latents to heads
  kIndexer,          // scores of keys, by which sparse attention chooses some
  kAttentionOut,     // back into the residual stream, of all kinds of attention and recurrence
  kDecayIn,          // decays and steps of a recurrence, and low-rank gates
  kConvolution,      // short convolutions, [channels, taps]
  kDecayRate,        // of a recurrence by head: the logarithm of its rate (A_log),
  kStepBias,         //   the bias of its steps (dt_bias),
  kSkip,             //   and of what passes it by (D)
  kFfnIn,            //
  kFfnOut,           // back into the residual stream
  kRouter,           // logits of experts, and of the gate of a shared one
  kRouterBias,       // chooses experts and weighs none: moved by their loads, it has no gradient
  kExpertIn,         // of all experts of a layer, concatenated; a token passes some of them
  kExpertOut,        //
  kExpertBias,       //   and their biases
  kNorm,             // weights of norms,
  kQueryNorm,        //   of queries before their scores,
  kKeyNorm,          //
  kFinalNorm,        //   of the head's input
  kFinalNormBias,    //
  kBias,             // all other biases
};
std::string_view name_of(ParameterRole role);

struct Parameter {
  // For a table that several stages of a pipeline have: their places on its axis, ascending. Each adds to the
  // gradient; norms count it on the first.
  struct Sharing {
    std::vector<int32_t> holders = {};
    bool is_first_holder = true;
  };
  // For one that is whole in the model's files and on one rank, but whose parts ranks hold in different ways:
  // the name of the whole, and the first row and first segment of it that this parameter has.
  struct Part {
    std::string of = {};
    int64_t first_row = 0;
    size_t first_segment = 0;
  };
  // For projections to queries and keys: how each update scales the rows of heads whose scores became too great
  // (optim/score_clip/score_clip.h).
  struct ScoreClip {
    // What a row takes of its head's factor.
    enum class Share : uint8_t {
      kNothing,  // of values
      kQuery,    // of queries whose keys take theirs,
      kKey,      //   and of these
      kAll,      // of queries whose keys all heads share and stay unchanged
    };
    struct Run {
      int64_t rows = 0;
      Share share = Share::kNothing;
      bool operator==(const Run&) const = default;
    };
    // Consecutive heads, each with these rows in order.
    struct Heads {
      int64_t count = 0;
      std::vector<Run> runs = {};
      bool operator==(const Heads&) const = default;
    };
    ValueId scores = kNone;  // f32[parts, query heads]: the greatest of a step, as ranks have found them
    double limit = 0;        // above 0
    int64_t kv_heads = 0;    // a divisor of the query heads
    std::vector<Heads> rows = {};  // all of the parameter's
  };
  // For kRouterBias: token–expert pairs sent to each expert in a step, i64[experts], and how far they move
  // it.
  struct Balance {
    ValueId loads = kNone;
    double rate = 0;
  };

  ValueId value = kNone;
  ValueId gradient = kNone;  // kNone until differentiate()
  Init init;
  ParameterRole role = ParameterRole::kBias;
  int32_t layer = kNone;    // the model's block that it is in; kNone outside
  bool of_encoder = false;  // belongs to the encoder of an encoder–decoder
  bool of_indexer = false;  // belongs to an indexer of sparse attention
  bool is_frozen = false;   // does not change in this run, bit for bit
  Sharing sharing = {};
  Part part = {};
  Balance balance = {};
  ScoreClip score_clip = {};

  // One of an optimizer, and not a bias that is moved by its loads.
  bool is_weight() const { return role != ParameterRole::kRouterBias; }
  // By an optimizer and a gradient.
  bool is_trained() const { return is_weight() && !is_frozen; }
};

struct Metric {
  MetricKind kind;
  int32_t index = 0;
  ValueId value = kNone;
};

// Shapes are global: of the whole value, even if a rank holds only a part. Placements are inferred as nodes
// are added: each node takes the option of its op that fits its inputs, on every axis of the mesh;
// InternalError if none does. Only `reshard` nodes (graph/reshard.h) move data.

class Graph {
 public:
  explicit Graph(Mesh mesh = Mesh::of_one()) : mesh_(std::move(mesh)) {}

  const Mesh& mesh() const { return mesh_; }
  // References stay valid while values are added.
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  // Replicated if not decided.
  Placement placement(ValueId id, Axis axis) const { return value(id).placements[axis]; }
  int32_t value_count() const { return static_cast<int32_t>(values_.size()); }

  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  ValueId add_value(Value value);
  ValueId add_parameter(std::string name, ParameterRole role, Shape shape, Init init,
                        Placements placements = {}, std::vector<int64_t> segments = {});
  // Appends a node; the op's rule makes its outputs, and throws where the inputs do not fit. Returns the
  // outputs, each in its place: kNone where the node does not have it.
  std::vector<ValueId> add_node(const OpDef& op, std::vector<ValueId> inputs, Attributes attrs = {});
  // Appends a node whose outputs are given: accumulators, state, or outputs left out (kNone). The rules still
  // check; undecided placements become those that the node produces.
  NodeId add_node_into(const OpDef& op, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
                       Attributes attrs = {});

  // Marks of the nodes that are added next.
  void set_layer(int32_t layer) { layer_ = layer; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_chunk(int32_t chunk) { chunk_ = chunk; }

  // A loop of nodes. `condition`, i32[1], is read before each pass; a node of the loop rewrites it in place.
  int32_t add_loop(ValueId condition);
  ValueId condition_of(int32_t loop) const { return loops_[static_cast<size_t>(loop)]; }

  // The value that a column of the batch is; kNone: it is not read.
  ValueId column(Column column) const { return columns_[column]; }
  void set_column(Column column, ValueId value) { columns_[column] = value; }

  // Adds an accumulator to the metrics; its name is PREFIX and that of the kind.
  ValueId add_metric(MetricKind kind, DType dtype, int64_t elements, int32_t index = 0,
                     const std::string& prefix = "");
  // Makes a value the metric of this kind and index, in the place of an earlier one.
  void set_metric(MetricKind kind, ValueId value, int32_t index = 0);
  // kNone: there is none.
  ValueId metric(MetricKind kind, int32_t index = 0) const;
  // In the order in which they were first set.
  const std::vector<Metric>& metrics() const { return metrics_; }

  // The value that a program's user reads or writes by name ("tokens", "logits"); kNone when absent.
  ValueId find_value(std::string_view name) const;

 private:
  void place_outputs(const Node& node);

  Mesh mesh_;
  std::deque<Value> values_;
  std::vector<Node> nodes_;
  std::vector<Parameter> parameters_;
  PerColumn<ValueId> columns_{kNone};
  std::vector<Metric> metrics_;
  std::vector<ValueId> loops_;  // conditions
  int32_t layer_ = kNone;
  int32_t chunk_ = 0;
  Phase phase_ = Phase::kForward;
};

// A person's view: one line a node.
std::string str(const Graph& graph);
std::string str(const Graph& graph, const Node& node);

}  // namespace strata::graph
