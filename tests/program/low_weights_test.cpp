// Programs whose weights are bf16 without masters compute what programs with the same numbers in fp32 do, in half the
// memory, and update them alike in every layout.
#include <gtest/gtest.h>

#include "fixtures/tiny_program.h"
#include "graph/reshard.h"
#include "mesh_model.h"
#include "models/parametrization.h"

namespace strata::program {
namespace {

using optim::Rounding;
using optim::Storage;

optim::RuleOf stored(const Storage& storage, const optim::Optimizer& optimizer = kSteadyAdamW) {
  return [=](const std::string&, graph::ParameterRole role) {
    optim::UpdateRule rule{.weight_decay = 0.1, .optimizer = optimizer, .storage = storage};
    if (!models::may_be_low(role)) rule.storage.weights = DType::kF32;
    return optim::one_rule(rule);
  };
}
constexpr Storage kStochastic{.weights = DType::kBF16, .seed = 21};
constexpr Storage kNearest{.weights = DType::kBF16, .rounding = Rounding::kNearest};
constexpr Storage kKahan{.weights = DType::kBF16, .rounding = Rounding::kKahan};

CompileOptions with(CompileOptions options, const Storage& storage) {
  options.rule_of = stored(storage);
  return options;
}

// Of a gradient, and of the loss, after a step whose weights are the same numbers.
class LowWeights : public testing::TestWithParam<const char*> {};

TEST_P(LowWeights, ComputeWhatTheSameNumbersInFp32Do) {
  for (const DType activations : {DType::kF32, DType::kBF16}) {
    CompileOptions options = tiny_options(GetParam());
    options.model = small_model(GetParam());
    options.activations = activations;
    if (activations == DType::kBF16)
      options.target.spec.isa.avx512_bf16 = options.target.spec.library_bf16 = false;
    const bool encoder = options.model.architecture == models::Architecture::kEncoderDecoder;
    Request request = tiny_request(2);
    request.encoder_length = encoder ? 24 : 0;
    TinyRun low(compile({request}, with(options, kNearest))), full(compile({request}, with(options, {})));
    int64_t narrow = 0;
    for (const Persistent& entry : low.executor.set().persistent) {
      if (entry.role != graph::Role::kParameter) continue;
      narrow += entry.dtype == DType::kBF16;
      full.executor.write_floats(entry.name, low.executor.read_floats(entry.name));
    }
    EXPECT_GT(narrow, 3);
    full.executor.run(0, {Segment::kEncode});
    // Nothing moves, so that the next step reads the same numbers, after the update.
    low.step(0);
    full.step(0);
    low.poison_workspace();
    low.step(0);
    full.step(0);
    for (const Persistent& entry : full.executor.set().persistent) {
      if (entry.role == graph::Role::kParameter) {
        EXPECT_EQ(low.executor.read_floats(entry.name), full.executor.read_floats(entry.name)) << entry.name;
      } else if (entry.role == graph::Role::kGradient || entry.role == graph::Role::kState ||
                 entry.name == "loss_sum" || entry.name == "param_norm") {
        EXPECT_EQ(low.executor.read_all<char>(entry.name), full.executor.read_all<char>(entry.name))
            << entry.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LowWeights,
                         testing::Values("llama3-5m", "gpt2-124m", "t5-small", "mixtral-8x7b"),
                         [](const auto& preset) {
                           const std::string name = preset.param;
                           return name.substr(0, name.find('-'));
                         });

int64_t bytes_of_role(const ProgramSet& set, graph::Role role) {
  int64_t bytes = 0;
  for (const Persistent& entry : set.persistent) bytes += entry.role == role ? entry.bytes : 0;
  return bytes;
}

// Two bytes for each element of a matrix or table, four of others; moments of 4, 2 or about 1; and the plan is what an
// executor takes.
TEST(LowWeightsMemory, IsTwoBytesAWeight) {
  CompileOptions options = tiny_options("llama3-29m");
  options.model = models::preset("llama3-5m");
  int64_t low_elements = 0, other_elements = 0;
  for (const auto& [name, shape] : models::parameter_shapes(options.model))
    (shape.rank() == 2 ? low_elements : other_elements) += shape.elements();
  struct Wanted {
    Storage storage;
    double weight, moments;
  };
  for (const Wanted& one :
       {Wanted{{}, 4, 8}, Wanted{kStochastic, 2, 8}, Wanted{kKahan, 2, 10},
        Wanted{{.weights = DType::kBF16, .moments = DType::kBF16, .seed = 1}, 2, 4},
        Wanted{{.weights = DType::kBF16, .moments = DType::kE4M3, .seed = 1}, 2, 2 + 8.0 / 256}}) {
    const auto set = compile({tiny_request()}, with(options, one.storage));
    EXPECT_EQ(bytes_of_role(*set, graph::Role::kParameter),
              static_cast<int64_t>(one.weight) * low_elements + 4 * other_elements);
    const bool in_blocks = one.storage.moments == DType::kE4M3;
    const double other =
        in_blocks || one.storage.moments == DType::kF32 ? 8 : 4;  // vectors are too small for blocks
    EXPECT_EQ(bytes_of_role(*set, graph::Role::kState),
              static_cast<int64_t>(one.moments * static_cast<double>(low_elements) +
                                   other * static_cast<double>(other_elements)) +
                  8);
    EXPECT_EQ(bytes_of_role(*set, graph::Role::kGradient), 4 * (low_elements + other_elements));
    const TinyRun run(set);
    EXPECT_EQ(run.executor.arena_bytes(), set->arena_bytes);
  }
}

// Bytes that gathers of weights put together on a rank.
int64_t gathered_bytes(const ProgramSet& set, bool matrices) {
  const graph::Graph& graph = set.programs[0].graph;
  int64_t bytes = 0;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op != &graph::Reshard::def) continue;
    for (const graph::ValueId output : node.outputs) {
      const graph::Value& value = graph.value(output);
      if (value.sharding.whole_of != graph::kNone && (value.shape.rank() > 1) == matrices)
        bytes += value.bytes();
    }
  }
  return bytes;
}

CompileOptions on_ranks(const Storage& storage, int zero, int64_t tensor = 1) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model = small_model("llama3-5m");
  options.model.hidden_size = 64;
  options.model.vocab_size = 160;
  options.mesh = graph::Mesh::of(1, 4 / tensor, 1, tensor);
  options.zero = zero;
  return with(options, storage);
}

TEST(LowWeightsOnRanks, AreGatheredInHalfOfTheBytes) {
  for (const int zero : {1, 2, 3}) {
    const auto low =
        compile({request_for(on_ranks(kStochastic, zero).model, 4)}, on_ranks(kStochastic, zero));
    const auto full = compile({request_for(on_ranks({}, zero).model, 4)}, on_ranks({}, zero));
    EXPECT_GT(gathered_bytes(*low, true), 0);
    EXPECT_EQ(2 * gathered_bytes(*low, true), gathered_bytes(*full, true)) << zero;
    EXPECT_EQ(gathered_bytes(*low, false), gathered_bytes(*full, false)) << zero;
  }
}

MeshRanks train(const CompileOptions& options) {
  Request request = request_for(options.model, options.mesh.batch_ranks());
  request.micro_batches = 1;
  const auto set = compile({request}, options);
  return MeshRanks(set, 3, [&](Executor& executor, const graph::Coordinates& at) {
    fill_batch(executor, at);
    for (int step = 0; step < 3; ++step) {
      write_hyper(executor, {.lr = 1e-2f});
      executor.run_script(0);
    }
  });
}

bool is_updated(const Persistent& entry) {
  return entry.role == graph::Role::kParameter || entry.role == graph::Role::kState;
}

// Without a norm, which ranks add up as they hold gradients, these are the same sums.
TEST(LowWeightsOnRanks, HaveTheSameBitsInEveryStageOfZero) {
  for (const Storage& storage :
       {kStochastic, kKahan, Storage{.weights = DType::kBF16, .moments = DType::kBF16, .seed = 2},
        Storage{.weights = DType::kBF16, .moments = DType::kE4M3, .seed = 2}}) {
    const MeshRanks whole = train(on_ranks(storage, 0));
    for (const int zero : {1, 2, 3}) {
      const MeshRanks shards = train(on_ranks(storage, zero));
      for (const Persistent& entry : whole.set().persistent) {
        if (!is_updated(entry)) continue;
        ASSERT_EQ(shards.whole(entry.name).values, whole.whole(entry.name).values)
            << entry.name << " " << zero;
      }
    }
  }
}

// One rank sums gradients in another order, so a few weights in a thousand round to a neighbour.
TEST(LowWeightsOnRanks, AreThoseOfOneRank) {
  CompileOptions alone = on_ranks(kStochastic, 0);
  alone.mesh = graph::Mesh::of_one();
  const MeshRanks one = train(alone);
  for (const auto& [zero, tensor] : {std::pair{2, 1}, {0, 2}, {3, 2}}) {
    const MeshRanks ranks = train(on_ranks(kStochastic, zero, tensor));
    int64_t count = 0, apart = 0;
    for (const Persistent& entry : one.set().persistent) {
      if (entry.role != graph::Role::kParameter || entry.dtype != DType::kBF16) continue;
      const Tensor found = ranks.whole(entry.name), wanted = one.whole(entry.name);
      ASSERT_EQ(found.shape, wanted.shape);
      count += std::ssize(wanted.values);
      for (size_t i = 0; i < wanted.values.size(); ++i) {
        apart += found.values[i] != wanted.values[i];
        ASSERT_NEAR(found.values[i], wanted.values[i], 0x1p-7 * std::abs(wanted.values[i]) + 1e-5)
            << entry.name;
      }
    }
    EXPECT_GT(count, 10'000);
    EXPECT_LT(apart * 100, count) << zero << " " << tensor;
  }
}

// A rank that holds columns cannot have whole blocks.
TEST(LowWeightsOnRanks, RefuseBlocksThatRanksWouldCut) {
  const CompileOptions options = on_ranks({.moments = DType::kE4M3}, 0, 2);
  try {
    compile({request_for(options.model, 2)}, options);
    FAIL() << "compiled";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.state_dtype = \"bf16\""), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("parallel.tensor = 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::program
