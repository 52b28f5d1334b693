// A recurrence whose sequences the ranks of the context axis share: the graph that ops::recurrence builds, and
// its gradient, run rank by rank, against one rank with whole sequences.
#include <gtest/gtest.h>

#include "fixtures/op_tensors.h"
#include "graph/differentiate.h"
#include "graph/localize.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/recurrence/recurrence.h"

namespace strata::ops {
namespace {

using graph::Axis;
using graph::Graph;
using graph::kNone;
using graph::Placement;
using graph::ValueId;

constexpr int64_t kSequences = 2, kLength = 24, kKeys = 4, kValues = 3;
const Placement kRows = Placement::sharded(0);

struct Kind {
  const char* name;
  RecurrenceKind kind;
  bool by_channel;
};

// The rows of a tensor that a rank has, of sequences of `length`.
Tensor rows_of(const Tensor& whole, int64_t length, int64_t index, int64_t ranks) {
  Tensor part = whole;
  part.values.clear();
  const int64_t columns = whole.shape.elements() / whole.shape[0];
  graph::Cut cut{.parts = {whole.shape[0]}, .ranks = ranks, .sequence = length};
  for (const graph::HeldSpan& held : graph::held_of(cut, index))
    part.values.insert(part.values.end(), whole.values.begin() + held.whole.begin * columns,
                       whole.values.begin() + held.whole.end * columns);
  part.shape.set(0, whole.shape[0] / ranks);
  return part;
}
Tensor joined(const std::vector<Tensor>& parts, int64_t length) {
  Tensor whole = parts[0];
  const auto ranks = static_cast<int64_t>(parts.size());
  whole.shape.set(0, whole.shape[0] * ranks);
  whole.values.resize(static_cast<size_t>(whole.shape.elements()));
  const int64_t columns = whole.shape.elements() / whole.shape[0];
  for (int64_t rank = 0; rank < ranks; ++rank) {
    graph::Cut cut{.parts = {whole.shape[0]}, .ranks = ranks, .sequence = length};
    for (const graph::HeldSpan& held : graph::held_of(cut, rank)) {
      const auto& from = parts[static_cast<size_t>(rank)].values;
      std::copy_n(from.begin() + held.at * columns, held.whole.size() * columns,
                  whole.values.begin() + held.whole.begin * columns);
    }
  }
  return whole;
}

// Every rank's values of a localized graph, by id.
class AllRanks {
 public:
  AllRanks(const Graph& of, int64_t ranks) : graph_(of), values_(static_cast<size_t>(ranks)) {
    for (auto& one : values_) one.resize(static_cast<size_t>(of.value_count()));
  }
  int64_t ranks() const { return static_cast<int64_t>(values_.size()); }
  Tensor& at(int64_t rank, ValueId id) { return values_[static_cast<size_t>(rank)][static_cast<size_t>(id)]; }
  std::vector<Tensor> of(ValueId id) {
    std::vector<Tensor> all;
    for (int64_t rank = 0; rank < ranks(); ++rank) all.push_back(at(rank, id));
    return all;
  }

  void run() {
    for (const graph::Node& node : graph_.nodes()) {
      if (node.op == &graph::Reshard::def) {
        const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
        ASSERT_EQ(attrs.from, kRows);
        const Tensor whole = joined(of(node.inputs[0]), attrs.sequence);
        for (int64_t rank = 0; rank < ranks(); ++rank) at(rank, node.outputs[0]) = whole;
      } else if (node.op == &graph::TakeShard::def) {
        const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
        ASSERT_EQ(attrs.to, kRows);
        for (int64_t rank = 0; rank < ranks(); ++rank)
          at(rank, node.outputs[0]) = rows_of(at(rank, node.inputs[0]), attrs.sequence, rank, ranks());
      } else {
        for (int64_t rank = 0; rank < ranks(); ++rank) run_node(node, rank);
      }
    }
  }

 private:
  void run_node(const graph::Node& node, int64_t rank) {
    std::vector<Tensor> inputs;
    for (const ValueId id : node.inputs) {
      inputs.emplace_back();
      inputs.back().absent = id == kNone;
      if (id == kNone) continue;
      inputs.back() = at(rank, id);
      ASSERT_EQ(inputs.back().shape, graph_.value(id).shape) << graph_.value(id).name;
    }
    const auto outputs = run_op({.name = "node", .op = node.op, .attrs = node.attrs}, inputs);
    for (size_t o = 0; o < outputs.size(); ++o)
      if (node.outputs[o] != kNone) at(rank, node.outputs[o]) = outputs[o];
  }

  const Graph& graph_;
  std::vector<std::vector<Tensor>> values_;
};

Tensor numbers(Shape shape, uint64_t stream, double scale, double shift, std::vector<int64_t> segments = {}) {
  Tensor tensor{DType::kF32, shape, std::move(segments), {}};
  for (int64_t i = 0; i < shape.elements(); ++i)
    tensor.values.push_back(
        static_cast<float>(shift + scale * pseudo_random(stream * 7919 + static_cast<uint64_t>(i))));
  return tensor;
}

// Outputs and the gradients of mixed, g and beta.
std::vector<Tensor> results(const Kind& kind, int64_t document, int64_t ranks) {
  const bool delta = kind.kind == RecurrenceKind::kDelta;
  const int64_t heads = 2, key_heads = kind.by_channel ? 2 : 1, rows = kSequences * kLength;
  const int64_t keys = key_heads * kKeys, values = heads * kValues;
  const std::vector<int64_t> segments =
      delta ? std::vector{keys, keys, values} : std::vector{values, keys, keys};
  std::vector<Tensor> operands{numbers({rows, 2 * keys + values}, 1, 1, 0, segments),
                               numbers({rows, heads * (kind.by_channel ? kKeys : 1)}, 2, 0.1, -0.12),
                               numbers({rows, heads}, 3, 0.9, 1), Tensor{DType::kI32, {rows}, {}, {}},
                               numbers({rows, values}, 4, 1, 0)};
  // The second sequence has a second document.
  for (int64_t i = 0; i < rows; ++i)
    operands[3].values.push_back(
        static_cast<double>(i < kLength + document ? i % kLength : i - kLength - document));

  Graph graph(graph::Mesh::of(1, 1, ranks, 1));
  std::vector<ValueId> ids;
  for (size_t i = 0; i < operands.size(); ++i)
    ids.push_back(
        graph.add_value({.name = "in" + std::to_string(i),
                         .dtype = operands[i].dtype,
                         .shape = operands[i].shape,
                         .placements = {{Axis::kContext, ranks > 1 ? kRows : Placement::replicated()}},
                         .segments = operands[i].segments}));
  const RecurrenceAttrs attrs{.kind = kind.kind,
                              .key_dim = kKeys,
                              .value_dim = kValues,
                              .sequence_length = kLength,
                              .pieces = ranks > 1 ? 2 * ranks : 1,
                              .l2_norm = delta,
                              .scale = 0.5,
                              .chunk = 4};
  const ValueId o =
      recurrence(graph, {.mixed = ids[0], .g = ids[1], .beta = ids[2], .positions = ids[3]}, attrs);
  const graph::GivenGradient given{o, ids[4]};
  const std::vector<ValueId> gradients = graph::differentiate(graph, {}, std::span(&given, 1));
  graph::localize(graph);
  AllRanks all(graph, ranks);
  for (size_t i = 0; i < operands.size(); ++i) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      all.at(rank, ids[i]) = ranks > 1 ? rows_of(operands[i], kLength, rank, ranks) : operands[i];
  }
  all.run();
  std::vector<Tensor> found;
  for (const ValueId id : {o, gradients[static_cast<size_t>(ids[0])], gradients[static_cast<size_t>(ids[1])],
                           gradients[static_cast<size_t>(ids[2])]})
    found.push_back(ranks > 1 ? joined(all.of(id), kLength) : all.at(0, id));
  return found;
}

TEST(RecurrenceOfRanks, IsThatOfWholeSequences) {
  for (const Kind& kind : {Kind{"head", RecurrenceKind::kDelta, false},
                           {"channel", RecurrenceKind::kDelta, true},
                           {"space", RecurrenceKind::kStateSpace, false}}) {
    // A document within the first range, at the begin of one, and within a later one.
    for (const int64_t document : {2, 6, 15}) {
      const std::vector<Tensor> one = results(kind, document, 1);
      for (const int64_t ranks : {2, 3}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, document at {}", kind.name, ranks, document));
        const std::vector<Tensor> several = results(kind, document, ranks);
        for (size_t i = 0; i < one.size(); ++i) {
          ASSERT_EQ(several[i].shape, one[i].shape);
          for (size_t k = 0; k < one[i].values.size(); ++k)
            ASSERT_TRUE(is_near(several[i].values[k], one[i].values[k], 1e-5))
                << "result " << i << ", element " << k << ": " << several[i].values[k] << ", not "
                << one[i].values[k];
        }
      }
    }
  }
}

// Without pieces the state would start at zero on every rank.
TEST(RecurrenceOfRanks, NeedsPieces) {
  Graph graph(graph::Mesh::of(1, 1, 2, 1));
  const auto add = [&](Shape shape, DType dtype, std::vector<int64_t> segments = {}) {
    return graph.add_value({.name = "x",
                            .dtype = dtype,
                            .shape = shape,
                            .placements = {{Axis::kContext, kRows}},
                            .segments = std::move(segments)});
  };
  const RecurrenceOperands operands{.mixed = add({8, 6}, DType::kF32, {2, 2, 2}),
                                    .g = add({8, 1}, DType::kF32),
                                    .beta = add({8, 1}, DType::kF32),
                                    .positions = add({8}, DType::kI32)};
  EXPECT_THROW(recurrence(graph, operands, {.key_dim = 2, .value_dim = 2, .sequence_length = 8}),
               InternalError);
}

}  // namespace
}  // namespace strata::ops
