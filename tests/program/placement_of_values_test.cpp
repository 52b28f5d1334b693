// Runs every program on a shadow of the arena that records which value was written to which bytes: each
// instruction must find exactly the values that it reads.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "fixtures/tiny_program.h"
#include "graph/sum.h"
#include "ops/activation/activation.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "program/memory_report.h"

namespace strata::program {
namespace {

using graph::kNone;
using graph::Node;
using graph::Role;
using graph::ValueId;

struct Range {
  int64_t begin, end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

class Shadow {
 public:
  Shadow(const ProgramSet& set, const Program& program) : set_(set), program_(program) {}

  void run(const Action& action) {
    for (size_t i = 0; i < program_.segment(action.segment, action.accumulates).size(); ++i) {
      step(action, i);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  struct Held {
    ValueId value;
    int32_t micro_batch;
    Range range;
  };

  int64_t address_of(const Action& action, const Operand& operand) const {
    if (operand.base == kInBatch)
      return set_.batch_offset + action.micro_batch * program_.batch_bytes + operand.offset;
    if (!is_in_pool(operand.base)) return operand.offset;
    return program_.pools[pool_of(operand.base)].offset_for(action) + operand.offset;
  }

  Range range_of(const Action& action, ValueId id) const {
    const int64_t begin = address_of(action, program_.places[static_cast<size_t>(id)].at);
    return {begin, begin + program_.graph.value(id).bytes()};
  }

  bool is_activation(ValueId id) const {
    return id != kNone && program_.graph.value(id).role == Role::kActivation;
  }

  void step(const Action& action, size_t index) {
    const Instruction& instruction = program_.segment(action.segment, action.accumulates)[index];
    const Node& node = program_.node_of(instruction);
    const std::string where = str(action) + " " + std::to_string(index) + " " + std::string(node.op->name);
    ASSERT_EQ(instruction.operand_count, node.inputs.size() + node.outputs.size() + 1) << where;
    const Operand* operands = program_.operands.data() + instruction.first_operand;
    for (size_t i = 0; i < node.inputs.size(); ++i) check_operand(node.inputs[i], operands[i], where);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      check_operand(node.outputs[i], operands[node.inputs.size() + i], where);

    for (const ValueId input : node.inputs) {
      if (!is_activation(input)) continue;
      const auto held = held_.find(range_of(action, input).begin);
      ASSERT_TRUE(held != held_.end() && held->second.value == input &&
                  held->second.micro_batch == action.micro_batch)
          << where << " reads " << program_.graph.value(input).name << ", whose memory holds "
          << (held == held_.end() ? "nothing" : program_.graph.value(held->second.value).name);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) check_output(action, node, o, where);
    const Operand& scratch = operands[instruction.operand_count - 1];
    if (scratch.base == kInArena) {
      // The size of the scratch is not recorded: check its first byte.
      const Range range{scratch.offset, scratch.offset + 1};
      ASSERT_GE(scratch.offset, set_.workspace_offset) << where;
      for (const auto* ids : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *ids) {
          ASSERT_FALSE(is_activation(id) && range_of(action, id).meets(range))
              << where << ": scratch overlaps " << program_.graph.value(id).name;
        }
      }
      forget(range);
    }
    for (const ValueId output : node.outputs) {
      if (!is_activation(output)) continue;
      const Range range = range_of(action, output);
      forget(range);
      held_[range.begin] = {output, action.micro_batch, range};
    }
  }

  void check_operand(ValueId id, const Operand& operand, const std::string& where) const {
    if (id == kNone) {
      ASSERT_EQ(operand.base, Base::kAbsent) << where;
      return;
    }
    const Operand& place = program_.places[static_cast<size_t>(id)].at;
    const int64_t end = place.offset + program_.graph.value(id).bytes();
    ASSERT_EQ(operand.offset, place.offset) << where;
    ASSERT_EQ(operand.base, place.base) << where;
    ASSERT_GE(operand.offset, 0) << where;
    if (operand.base == kInBatch) {
      ASSERT_LE(end, program_.batch_bytes) << where;
    } else if (is_in_pool(operand.base)) {
      const Pool& pool = program_.pools[pool_of(operand.base)];
      ASSERT_LE(end, pool.slot_bytes) << where;
      ASSERT_GE(pool.offset, set_.workspace_offset) << where;
      ASSERT_LE(pool.offset + pool.bytes(), set_.arena_bytes) << where;
    } else {
      ASSERT_LE(end, set_.arena_bytes) << where << ": beyond the arena";
    }
  }

  // An output may overlap an input of the same instruction only if the op allows it.
  void check_output(const Action& action, const Node& node, size_t o, const std::string& where) const {
    const ValueId output = node.outputs[o];
    if (!is_activation(output)) return;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!is_activation(input)) continue;
      if (!range_of(action, output).meets(range_of(action, input))) continue;
      bool allowed = false;
      for (const graph::InPlace& pair : node.op->in_place)
        allowed = allowed || (pair.output == static_cast<int>(o) && pair.input == static_cast<int>(i));
      ASSERT_TRUE(allowed) << where << " writes output " << o << " over input " << i;
    }
    for (size_t other = 0; other < o; ++other) {
      if (!is_activation(node.outputs[other])) continue;
      ASSERT_FALSE(range_of(action, output).meets(range_of(action, node.outputs[other]))) << where;
    }
  }

  void forget(const Range& range) {
    std::erase_if(held_, [&](const auto& entry) { return entry.second.range.meets(range); });
  }

  const ProgramSet& set_;
  const Program& program_;
  std::map<int64_t, Held> held_;
};

void expect_sound(const ProgramSet& set) {
  // The regions cover the arena to the byte.
  int64_t end = 0;
  for (const Region& region : arena_regions(set)) {
    EXPECT_EQ(region.offset, end) << region.name;
    end = region.offset + region.bytes;
  }
  EXPECT_EQ(end, set.arena_bytes);
  // Persistent values do not overlap.
  std::map<int64_t, const Persistent*> order;
  for (const Persistent& entry : set.persistent) {
    EXPECT_TRUE(order.emplace(entry.offset, &entry).second || entry.bytes == 0) << entry.name;
  }
  end = 0;
  for (const auto& [offset, entry] : order) {
    EXPECT_GE(offset, end) << entry->name << " overlaps the value before it";
    end = offset + entry->bytes;
  }
  EXPECT_LE(end, set.batch_offset);
  EXPECT_EQ(set.workspace_offset, set.batch_offset + set.batch_bytes);
  for (const Program& program : set.programs) {
    Shadow shadow(set, program);
    shadow.run({Segment::kSetup});
    shadow.run({Segment::kEncode});
    for (const Action& action : program.script) shadow.run(action);
    if (testing::Test::HasFatalFailure()) return;
    const Peak peak = workspace_peak(program);
    int64_t buffers = 0;
    for (const PeakBuffer& buffer : peak.buffers) buffers += buffer.bytes;
    EXPECT_EQ(buffers, peak.alive);
    EXPECT_LE(peak.alive, peak.bytes);
  }
}

// An order of micro-batches.
struct Order {
  const char* name;
  Backward backward;
  Script order;
};
const Segment kF = Segment::kForward, kB = Segment::kBackward, kI = Segment::kInputGrad,
              kW = Segment::kWeightGrad;
const Order kOrders[] = {
    {"one by one", Backward::kCombined, {}},
    {"split", Backward::kSplit, {}},
    {"all F before all B", Backward::kCombined, {{kF, 0}, {kF, 1}, {kF, 2}, {kB, 0}, {kB, 1}, {kB, 2}}},
    {"two in flight", Backward::kCombined, {{kF, 0}, {kF, 1}, {kB, 0}, {kF, 2}, {kB, 1}, {kB, 2}}},
    {"all W last",
     Backward::kSplit,
     {{kF, 0}, {kI, 0}, {kF, 1}, {kI, 1}, {kF, 2}, {kI, 2}, {kW, 0}, {kW, 1}, {kW, 2}}},
    {"W in the bubbles",
     Backward::kSplit,
     {{kF, 0}, {kF, 1}, {kI, 0}, {kF, 2}, {kI, 1}, {kW, 0}, {kI, 2}, {kW, 1}, {kW, 2}}},
};
void PrintTo(const Order& order, std::ostream* out) {
  *out << order.name;
}

class ValuesOfModels : public testing::TestWithParam<std::tuple<const char*, Recompute, DType, Order>> {};

TEST_P(ValuesOfModels, AreFoundWhereTheyAreRead) {
  const auto& [preset, recompute, dtype, order] = GetParam();
  CompileOptions options = tiny_options(preset);
  options.recompute = recompute;
  options.activations = dtype;
  options.backward = order.backward;
  options.cache_capacity = 64;
  std::vector<Request> requests{tiny_request(3)};
  requests[0].order = order.order;
  requests.push_back(
      {.kind = Kind::kEvaluate, .sequences = 3, .sequence_length = 40, .per_token_loss = true});
  requests.push_back({.kind = Kind::kPrefill, .sequences = 1, .sequence_length = 16});
  requests.push_back({.kind = Kind::kDecode, .sequences = 1, .sequence_length = 1});
  expect_sound(*compile(requests, options));
}

INSTANTIATE_TEST_SUITE_P(
    All, ValuesOfModels,
    testing::Combine(testing::Values("llama3-5m", "gpt2-124m"),
                     testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull),
                     testing::Values(DType::kF32, DType::kBF16), testing::ValuesIn(kOrders)));

// A family of random graphs: sums, norms, activations and matmuls in any order, with values that are read
// again much later. intermediate_size is the seed.
models::Hidden build_random(const models::ModelConfig& config, layers::Context& context) {
  graph::Graph& g = context.graph;
  std::mt19937_64 random(static_cast<uint64_t>(config.intermediate_size));
  const ValueId table = layers::embedding_table(context, "embedding", graph::ParameterRole::kEmbedding,
                                                config.vocab_size, config.hidden_size);
  std::vector<ValueId> values{
      ops::embedding(g, context.inputs.batch[Column::kTokens], table, context.settings.activations)};
  auto any = [&] { return values[random() % values.size()]; };
  const auto count = 3 + random() % 20;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = "n" + std::to_string(i);
    g.set_layer(static_cast<int32_t>(i / 4));
    switch (random() % 5) {
      case 0:
        values.push_back(graph::add_sum(g, any(), any()));
        break;
      case 1:
        values.push_back(ops::activation(g, any(), ActivationKind::kGeluTanh));
        break;
      case 2: {
        const ValueId weight = g.add_parameter(name + ".norm", graph::ParameterRole::kNorm,
                                               {config.hidden_size}, {graph::Init::Kind::kOnes, 0});
        const auto normed = ops::rms_norm(g, any(), random() % 2 == 0 ? kNone : any(), weight, 1e-5);
        values.push_back(normed.y);
        values.push_back(normed.h);
        break;
      }
      case 3: {
        const ValueId weight = g.add_parameter(name + ".weight", graph::ParameterRole::kAttentionOut,
                                               {config.hidden_size, config.hidden_size}, {});
        values.push_back(ops::linear(g, any(), weight));
        break;
      }
      default: {
        const ValueId up = g.add_parameter(name + ".up", graph::ParameterRole::kFfnIn,
                                           {2 * config.hidden_size, config.hidden_size}, {}, {},
                                           {config.hidden_size, config.hidden_size});
        values.push_back(ops::gated(g, ops::linear(g, any(), up), ActivationKind::kSilu));
        break;
      }
    }
  }
  g.set_layer(kNone);
  // The loss depends on all values, so every parameter has a gradient.
  ValueId last = values.front();
  for (size_t i = 1; i < values.size(); ++i) last = graph::add_sum(g, last, values[i]);
  return {last, table};
}

const models::Family kRandomFamily{"random", "random", build_random, nullptr, nullptr, nullptr, nullptr};

TEST(ValuesOfRandomGraphs, AreFoundWhereTheyAreRead) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model.family = &kRandomFamily;
  options.model.hidden_size = 16;
  options.model.vocab_size = 33;
  for (int64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    options.model.intermediate_size = seed;
    options.recompute = static_cast<Recompute>(seed % 3);
    const Order& order = kOrders[static_cast<size_t>(seed) % std::size(kOrders)];
    options.backward = order.backward;
    Request request = tiny_request(3);
    request.order = order.order;
    expect_sound(*compile({request}, options));
    if (HasFatalFailure()) return;
  }
}

TEST(MemoryBudget, LessMemoryMeansMoreRecompute) {
  CompileOptions options = tiny_options("llama3-5m");
  options.recompute = Recompute::kNone;
  const int64_t most = compile({tiny_request()}, options)->arena_bytes;
  options.recompute = Recompute::kFull;
  const int64_t least = compile({tiny_request()}, options)->arena_bytes;
  ASSERT_LT(least, most);
  options.recompute.reset();
  for (const int64_t budget : {most, most - 1, (most + least) / 2, least}) {
    options.memory_budget = budget;
    EXPECT_LE(compile({tiny_request()}, options)->arena_bytes, budget);
  }
  options.memory_budget = least - 1;
  EXPECT_THROW(compile({tiny_request()}, options), ConfigError);
  options.recompute = Recompute::kNone;
  EXPECT_THROW(compile({tiny_request()}, options), ConfigError)
      << "an explicit recompute is held to the budget";
}

TEST(MemoryBudget, TheExecutorAllocatesThePlan) {
  const TinyRun run(compile({tiny_request()}, tiny_options("gpt2-124m")));
  EXPECT_EQ(run.executor.arena_bytes(), run.executor.set().arena_bytes);
}

}  // namespace
}  // namespace strata::program
