// A program with instructions that a communicator executes.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "fixtures/tiny_program.h"
#include "graph/differentiate.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/activation/activation.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/statistics/statistics.h"
#include "program/explain.h"

namespace strata::program {
namespace {

using graph::kNone;
using graph::NodeView;
using graph::Queue;
using graph::ValueId;

// The sum over the ranks of a mesh axis: a copy if there is one rank.
graph::ReshardAttrs sum_over_first_axis() {
  return {.from = graph::Placement::partial(), .to = {}, .cuts = {graph::ReshardCuts{}}};
}
std::vector<graph::ValueSpec> same_shape(const NodeView& view) {
  return {{"exchanged", view.in(0).dtype, view.in(0).shape}};
}
graph::Cost streamed(const NodeView& view) {
  return {0, graph::streamed_bytes(view)};
}
std::vector<graph::PlacementOption> anywhere(const NodeView&, graph::Axis) {
  return {};
}
void exchange_back(graph::GradientBuilder& builder, const graph::Node& node);

const graph::OpDef kExchange{.name = "exchange",
                             .family = "exchange",
                             .infer = same_shape,
                             .cost = streamed,
                             .placements = anywhere,
                             .gradient = exchange_back,
                             .in_place = {},
                             .recompute = nullptr,
                             .queue = Queue::kCommunication};

void exchange_back(graph::GradientBuilder& builder, const graph::Node& node) {
  const ValueId gradient =
      builder.graph().add_node(kExchange, {builder.gradient_of(node.outputs[0])}, sum_over_first_axis())[0];
  builder.add_gradient(node.inputs[0], gradient);
}

// Matmuls, each after an exchange, and other computation that does not depend on the exchange.
template <bool exchanges>
models::Hidden build_exchanging(const models::ModelConfig& config, layers::Context& context) {
  graph::Graph& g = context.graph;
  const ValueId table = layers::embedding_table(context, "embedding", graph::ParameterRole::kEmbedding,
                                                config.vocab_size, config.hidden_size);
  ValueId x = ops::embedding(g, context.inputs.batch[Column::kTokens], table, context.settings.activations);
  for (int i = 0; i < 4; ++i) {
    g.set_layer(i);
    const auto weight = [&](const std::string& name) {
      return g.add_parameter(name + std::to_string(i), graph::ParameterRole::kAttentionOut,
                             {config.hidden_size, config.hidden_size}, {});
    };
    // Work independent of the exchange: after it in forward, and before it as seen from backward.
    const ValueId before = ops::linear(g, ops::activation(g, x, ActivationKind::kGeluTanh), weight("a"));
    const ValueId exchanged = exchanges ? g.add_node(kExchange, {x}, sum_over_first_axis())[0] : x;
    const ValueId after = ops::linear(g, ops::activation(g, before, ActivationKind::kGeluTanh), weight("b"));
    x = graph::add_sum(g, graph::add_sum(g, before, after), ops::linear(g, exchanged, weight("c")));
  }
  g.set_layer(kNone);
  if (exchanges) {
    graph::Value sent;
    sent.name = "sent";
    sent.dtype = g.value(x).dtype;
    sent.shape = g.value(x).shape;
    sent.role = graph::Role::kMetric;
    g.add_node_into(kExchange, {x}, {g.add_value(std::move(sent))}, sum_over_first_axis());
  }
  const ValueId head =
      g.add_parameter("head", graph::ParameterRole::kHead, {config.vocab_size, config.hidden_size}, {});
  return {x, head};
}

const models::Family kExchanging{"exchanging", "exchanging", build_exchanging<true>, nullptr, nullptr,
                                 nullptr,      nullptr};
const models::Family kPlain{"plain", "plain", build_exchanging<false>, nullptr, nullptr, nullptr, nullptr};

class Queues : public testing::TestWithParam<Backward> {
 protected:
  std::shared_ptr<const ProgramSet> compiled(bool with_exchanges, Script order = {}) const {
    CompileOptions options = tiny_options("llama3-5m");
    options.model.family = with_exchanges ? &kExchanging : &kPlain;
    options.backward = GetParam();
    Request request = tiny_request(3);
    request.order = std::move(order);
    return compile({request}, options);
  }
  Script interleaved() const {
    const Segment kF = Segment::kForward, kB = Segment::kBackward, kI = Segment::kInputGrad,
                  kW = Segment::kWeightGrad;
    if (GetParam() == Backward::kCombined) return {{kF, 0}, {kF, 1}, {kB, 0}, {kF, 2}, {kB, 1}, {kB, 2}};
    return {{kF, 0}, {kF, 1}, {kI, 0}, {kI, 1}, {kW, 0}, {kF, 2}, {kI, 2}, {kW, 1}, {kW, 2}};
  }
};

// Counts the instructions that the device does not execute.
struct Exchanges final : Executor::Observer {
  explicit Exchanges(const Program& of) : program(of) {}
  void instruction(size_t, const Action& action, size_t index, double, double) override {
    const Instruction& one = program.list_of(action)[index];
    EXPECT_EQ(one.run == nullptr, !program.node_of(one).op->has_kernel());
    count += one.run == nullptr ? 1 : 0;
  }
  const Program& program;
  int count = 0;
};

TEST_P(Queues, ACommunicatorExecutesTheOthers) {
  TinyRun plain(compiled(false));
  plain.step();
  for (const Script& order : {Script{}, interleaved()}) {
    TinyRun exchanging(compiled(true, order));
    Exchanges exchanges(exchanging.executor.program(0));
    exchanging.executor.observe(&exchanges);
    exchanging.step();
    EXPECT_EQ(exchanges.count, 3 * 9)
        << "four in forward and four in backward per micro-batch, and one into a metric";
    const auto left = plain.state();
    auto right = exchanging.state();
    std::erase_if(right, [](const auto& entry) { return entry.first == "sent"; });
    ASSERT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(left[i] == right[i]) << left[i].first << " differs";
  }
}

// Received data may be accumulated: the instruction records it.
TEST_P(Queues, AnInstructionRecordsItsAccumulators) {
  const auto set = compiled(true);
  const Program& program = set->programs[0];
  for (const bool accumulates : {false, true}) {
    int into_metric = 0;
    for (const Instruction& instruction : program.segment(Segment::kForward, accumulates)) {
      const graph::Node& node = program.node_of(instruction);
      const bool is_metric =
          instruction.queue == Queue::kCommunication && program.graph.value(node.outputs[0]).name == "sent";
      into_metric += is_metric;
      uint32_t adds = is_metric && accumulates ? 1 : 0;
      // The sum and count of the split loss.
      if (node.op == &ops::CrossEntropyLoss::def && accumulates) adds = 3;
      if (node.op == &ops::Statistics::def) continue;
      EXPECT_EQ(instruction.adds, adds) << node.op->name;
    }
    EXPECT_EQ(into_metric, 1);
  }
}

struct Range {
  int64_t begin, end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

// For each instruction, those that are certainly done when it starts: it waited for them, or they precede it
// on its queue.
std::vector<std::vector<bool>> surely_done(const Program& program, const std::vector<Instruction>& list) {
  std::vector<std::vector<bool>> done(list.size(), std::vector<bool>(list.size(), false));
  const auto add_done = [&](size_t i, size_t other) {
    done[i][other] = true;
    for (size_t k = 0; k < other; ++k) done[i][k] = done[i][k] || done[other][k];
  };
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (list[j].queue == list[i].queue) add_done(i, j);
    }
    for (const int32_t other : program.waits_of(list[i])) add_done(i, static_cast<size_t>(other));
  }
  return done;
}

// If two instructions access the same bytes and one writes, the earlier is done before the later starts.
TEST_P(Queues, NothingIsReusedBeforeItsReadersAreDone) {
  for (const Script& order : {Script{}, interleaved()}) {
    const auto set = compiled(true, order);
    const Program& program = set->programs[0];
    size_t waits = 0;
    for (int s = 0; s < kSegments; ++s) {
      const auto& list = program.segment(static_cast<Segment>(s));
      const auto done = surely_done(program, list);
      const auto ranges_of = [&](size_t i, bool outputs) {
        const graph::Node& node = program.node_of(list[i]);
        std::vector<Range> ranges;
        for (const ValueId id : outputs ? node.outputs : node.inputs) {
          if (id == kNone) continue;
          const Place& place = program.places[static_cast<size_t>(id)];
          const int64_t begin = place.at.offset + (static_cast<int64_t>(place.at.base) << 40);
          ranges.push_back({begin, begin + place.bytes});
        }
        return ranges;
      };
      for (size_t i = 0; i < list.size(); ++i) {
        waits += list[i].wait_count;
        for (size_t j = 0; j < i; ++j) {
          bool meet = false;
          for (const bool early : {false, true}) {
            for (const bool late : {false, true}) {
              if (!early && !late) continue;
              for (const Range& a : ranges_of(j, early)) {
                for (const Range& b : ranges_of(i, late)) meet = meet || a.meets(b);
              }
            }
          }
          if (meet) {
            ASSERT_TRUE(done[i][j]) << name_of(static_cast<Segment>(s)) << ": " << i << " on " << j;
          }
        }
      }
    }
    EXPECT_GE(waits, 8u);
  }
}

// Memory that an exchange accesses stays allocated until an instruction has waited for it; no buffer that is
// allocated meanwhile overlaps it.
TEST_P(Queues, MemoryIsKeptUntilAnExchangeIsDone) {
  const auto set = compiled(true);
  const Program& program = set->programs[0];
  const auto range_of = [&](ValueId id) {
    const Place& place = program.places[static_cast<size_t>(id)];
    return Range{place.at.offset, place.at.offset + place.bytes};
  };
  size_t begin = 0;  // of the segment among those of a micro-batch
  size_t overlapped = 0;
  for (int s = 0; s < kSegments; ++s) {
    const auto& list = program.segment(static_cast<Segment>(s));
    if (!is_of_micro_batch(static_cast<Segment>(s))) continue;
    const auto done = surely_done(program, list);
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].queue == Queue::kCompute) continue;
      const graph::Node& exchange = program.node_of(list[i]);
      size_t end = i + 1;  // the first computation that depends on it
      while (end < list.size() && (list[end].queue != Queue::kCompute || !done[end][i])) ++end;
      std::vector<ValueId> touched;
      for (const ValueId id : {exchange.inputs[0], exchange.outputs[0]}) {
        if (program.graph.value(id).role == graph::Role::kActivation) touched.push_back(id);
      }
      for (const ValueId held : touched)
        EXPECT_GE(program.places[static_cast<size_t>(held)].last, static_cast<int32_t>(begin + end) - 1);
      for (size_t k = i + 1; k < end; ++k) {
        for (const ValueId made : program.node_of(list[k]).outputs) {
          if (made == kNone || program.graph.value(made).role != graph::Role::kActivation) continue;
          ++overlapped;
          for (const ValueId held : touched)
            EXPECT_FALSE(range_of(made).meets(range_of(held))) << program.graph.value(made).name;
        }
      }
    }
    begin += list.size();
  }
  EXPECT_GE(overlapped, 8u) << "forward and backward compute during exchanges";
}

// Computation alongside an exchange need not wait: only readers of its result do.
TEST_P(Queues, OnlyReadersOfItsResultWaitForAnExchange) {
  const auto set = compiled(true);
  const Program& program = set->programs[0];
  for (int s = 0; s < kSegments; ++s) {
    const auto& list = program.segment(static_cast<Segment>(s));
    for (const Instruction& instruction : list) {
      if (instruction.queue != Queue::kCompute) continue;
      const graph::Node& node = program.node_of(instruction);
      for (const int32_t other : program.waits_of(instruction)) {
        EXPECT_TRUE(list[static_cast<size_t>(other)].signals);
        const ValueId given = program.node_of(list[static_cast<size_t>(other)]).outputs[0];
        EXPECT_NE(std::find(node.inputs.begin(), node.inputs.end(), given), node.inputs.end())
            << node.op->name << " of " << name_of(static_cast<Segment>(s));
      }
    }
  }
}

TEST_P(Queues, AreExplained) {
  const auto set = compiled(true);
  const std::string text = explain_program(set->programs[0], set->options.target.spec);
  EXPECT_NE(text.find("queue communication"), std::string::npos);
  EXPECT_NE(text.find("waits for"), std::string::npos);
  const auto json = parse_json<nlohmann::json>(explain_json(*set, set->options.target.spec));
  int exchanged = 0;
  for (const auto& one : json["programs"][0]["segments"]["forward"]) {
    if (one["op"] != "exchange") continue;
    ++exchanged;
    EXPECT_EQ(one["queue"], "communication");
    EXPECT_EQ(one["waits"].size(), 1u);
    EXPECT_EQ(one["signals"], one["outputs"][0]["role"] != "metric") << "no instruction reads it";
  }
  EXPECT_EQ(exchanged, 5);
}

INSTANTIATE_TEST_SUITE_P(All, Queues, testing::Values(Backward::kCombined, Backward::kSplit));

}  // namespace
}  // namespace strata::program
