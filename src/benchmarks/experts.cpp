// strata bench experts: bandwidth of expert dispatch between 2 or 4 ranks, against the same number of threads
// that copy the same rows; and the time of a layer with imbalanced experts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "comm/exchange.h"
#include "comm/world.h"
#include "device/op_run.h"
#include "device/open/open.h"
#include "graph/differentiate.h"
#include "hardware/device_spec.h"
#include "ops/activation/activation.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/experts/experts.h"
#include "ops/router/router.h"

namespace strata::benchmarks {
namespace {

using graph::Graph;
using graph::ParameterRole;
using graph::ValueId;

constexpr int64_t kTokens = 4096, kWidth = 512, kFfn = 192, kExperts = 64, kTopK = 8;
constexpr int kTurns = 9;
constexpr double kCopyGoal = 0.6, kShareGoal = 0.8;

// Expert ids of each token. Rank 0's experts are chosen `imbalance` times as often as the mean over ranks;
// all others equally often.
std::vector<int32_t> ids_of(int64_t ranks, double imbalance, uint64_t seed) {
  const int64_t each = kExperts / ranks;
  const double share_of_first = imbalance / static_cast<double>(ranks);
  std::vector<int32_t> ids;
  uint64_t state = seed * 2 + 1;
  const auto draw = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  for (int64_t token = 0; token < kTokens; ++token) {
    std::vector<int32_t> chosen;
    while (std::ssize(chosen) < kTopK) {
      const bool first = ranks > 1 && draw() < share_of_first;
      const int64_t from = first ? 0 : ranks > 1 ? each : 0, count = first ? each : kExperts - from;
      const auto id = static_cast<int32_t>(from + static_cast<int64_t>(draw() * static_cast<double>(count)));
      // If all experts of a rank may be taken already, accept duplicates.
      const bool is_new = std::find(chosen.begin(), chosen.end(), id) == chosen.end();
      if (is_new || std::ssize(chosen) >= each) chosen.push_back(id);
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

// The number of rows that a rank receives with balanced experts, including its own.
int64_t rows_of(int rank, int ranks) {
  int64_t rows = 0;
  for (int from = 0; from < ranks; ++from) {
    const auto ids = ids_of(ranks, 1, static_cast<uint64_t>(from) + 1);
    for (auto token = ids.begin(); token != ids.end(); token += kTopK)
      rows += std::any_of(token, token + kTopK, [&](int32_t id) { return id / (kExperts / ranks) == rank; })
                  ? 1
                  : 0;
  }
  return rows;
}

// A layer's experts on one rank. Without `computes`, rows are sent and returned unchanged.
class Layer {
 public:
  Layer(comm::World& world, comm::Communicator& group, bool computes, DType dtype)
      : world_(world), group_(group), op_(make(group.size(), computes, dtype, values_)) {
    op_.share(group);
  }

  double seconds(double imbalance) {
    const auto ids = ids_of(group_.size(), imbalance, static_cast<uint64_t>(world_.rank()) + 1);
    std::copy(ids.begin(), ids.end(), op_.data_as<int32_t>(values_.ids));
    world_.barrier();
    const double begin = monotonic_seconds();
    op_.run();
    group_.barrier();
    return monotonic_seconds() - begin;
  }

 private:
  struct Values {
    ValueId ids = graph::kNone;
  };

  static device::OpRun make(int64_t ranks, bool computes, DType dtype, Values& values) {
    Graph graph;
    const auto operand = [&](const char* name, DType type, Shape shape) {
      return device::add_operand(graph, name, type, shape);
    };
    const ValueId x = operand("x", dtype, {kTokens, kWidth});
    values.ids = operand("ids", DType::kI32, {kTokens, kTopK});
    const ValueId weights = operand("weights", DType::kF32, {kTokens, kTopK});
    ops::DispatchAttrs attrs{
        .axes = {graph::Axis::kShard}, .tokens = kTokens, .k = kTopK, .experts = kExperts, .ranks = ranks};
    // Capacity for the worst imbalance, so that all cases take one pass.
    attrs.capacity = {kTokens, kTokens * kTopK};
    const auto plan = graph::add<ops::PlanDispatch>(graph, {.ids = values.ids, .weights = weights}, attrs);
    ValueId rows = graph::add<ops::DispatchRows>(graph, {.x = x, .way = plan.way}, attrs).rows;
    if (computes) {
      const int64_t own = attrs.own_experts();
      const ValueId up = graph.add_parameter("up", ParameterRole::kExpertIn, {own * 2 * kFfn, kWidth}, {}, {},
                                             std::vector(static_cast<size_t>(2 * own), kFfn));
      const ValueId down = graph.add_parameter("down", ParameterRole::kExpertOut, {own * kWidth, kFfn}, {});
      const auto gate_up = graph::add<ops::ExpertsIn>(
          graph, {.x = rows, .ids = plan.ids, .weight = up, .offsets = plan.offsets}, {own});
      const ValueId hidden =
          ops::scale_rows(graph, ops::gated(graph, gate_up.y, ActivationKind::kSilu), plan.weights);
      rows = graph::add<ops::ExpertsOut>(
                 graph, {.x = hidden, .ids = plan.ids, .weight = down, .offsets = plan.offsets}, {own})
                 .y;
    }
    const ValueId y = graph::add<ops::CombineRows>(graph, {.rows = rows, .way = plan.way}, attrs).y;
    if (computes) {
      const ValueId dy = operand("dy", dtype, {kTokens, kWidth});
      graph::differentiate(graph, {}, std::vector<graph::GivenGradient>{{y, dy}});
    }
    const auto device = device::open(device::Kind::kCpu, 0, 1);
    return device::OpRun(std::move(graph), device->target().bindings, device->spec());
  }

  comm::World& world_;
  comm::Communicator& group_;
  Values values_;
  device::OpRun op_;
};

// Times of each turn, and the traffic of a rank.
struct Moved {
  std::vector<double> rows, copies;  // seconds
  double bytes = 0;                  // of a rank, in both directions
};

std::unique_ptr<comm::Communicator> all_ranks(comm::World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.group(all, "bench");
}

Moved move_rows(int ranks, DType dtype) {
  Moved moved;
  comm::run_local_ranks(ranks, [&](comm::World& world) {
    const auto group = all_ranks(world);
    Layer layer(world, *group, false, dtype);
    const auto bytes = static_cast<size_t>(rows_of(world.rank(), ranks) * kWidth * size_of(dtype));
    std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
    layer.seconds(1);
    for (int turn = 0; turn < kTurns; ++turn) {
      const double seconds = layer.seconds(1);
      group->barrier();
      const double begin = monotonic_seconds();
      std::memcpy(to.data(), from.data(), bytes);
      std::memcpy(from.data(), to.data(), bytes);
      group->barrier();
      const double copies = monotonic_seconds() - begin;
      if (world.rank() != 0) continue;
      moved.rows.push_back(seconds);
      moved.copies.push_back(copies);
      moved.bytes = 2 * static_cast<double>(bytes);
    }
  });
  return moved;
}

void dispatch(BenchContext& context) {
  for (const int ranks : {2, 4}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Moved moved = move_rows(ranks, dtype);
      std::vector<double> shares;
      for (size_t i = 0; i < moved.rows.size(); ++i) shares.push_back(moved.copies[i] / moved.rows[i]);
      const std::string name = fmt::format("{} ranks, {}", ranks, name_of(dtype));
      context.print(
          "  {:<28} {:>6.2f} GB/s per rank to experts and back, {:>5.1f} % of copies (goal {:.0f} %)\n", name,
          moved.bytes / median(moved.rows) * 1e-9, 100 * median(shares), 100 * kCopyGoal);
      context.result["dispatch"][name] = {{"of_copies", median(shares)}, {"goal", kCopyGoal}};
    }
  }
}

// Forward and backward of a layer in which one rank has more rows than others.
void imbalance(BenchContext& context) {
  for (const int ranks : {2, 4}) {
    const std::vector<double> factors =
        ranks == 2 ? std::vector<double>{1, 1.5, 2} : std::vector<double>{1, 1.5, 2, 4};
    std::vector<std::vector<double>> seconds(factors.size());
    comm::run_local_ranks(ranks, [&](comm::World& world) {
      const auto group = all_ranks(world);
      Layer layer(world, *group, true, DType::kF32);
      layer.seconds(1);
      for (int turn = 0; turn < kTurns / 3; ++turn) {
        for (size_t i = 0; i < factors.size(); ++i) {
          const double one = layer.seconds(factors[i]);
          if (world.rank() == 0) seconds[i].push_back(one);
        }
      }
    });
    context.print("  {} ranks, load of the busiest relative to the mean:", ranks);
    for (size_t i = 0; i < factors.size(); ++i) {
      const double times = median(seconds[i]) / median(seconds[0]);
      context.print("  {:g}: {:.2f} x the time", factors[i], times);
      context.result["imbalance"][fmt::format("{} ranks", ranks)][fmt::format("{:g}", factors[i])] = times;
    }
    context.print("\n");
  }
}

// Two ranks with one thread each against one rank with two, on a whole model.
void share(BenchContext& context) {
  std::vector<std::string> sets{"training.sequence_length=512", "training.global_batch_size=8",
                                "training.micro_batch_size=4",  "precision.compute=\"fp32\"",
                                "moe.force_balanced=true",      "parallel.zero=0"};
  if (context.sets.empty()) sets.emplace_back("model.preset=\"moe-162m-a28m\"");
  sets.insert(sets.end(), context.sets.begin(), context.sets.end());
  auto shared = sets;
  shared.emplace_back("parallel.expert=2");
  std::vector<double> one, two, shares;
  for (int turn = 0; turn < 5; ++turn) {
    one.push_back(run_child(sets, 3).whole_step_seconds);
    two.push_back(run_child(shared, 3, {2, false}).whole_step_seconds);
    shares.push_back(one.back() / two.back());
  }
  context.print(
      "  whole step on two ranks with balanced experts: {:.1f} % of one rank's tokens/s (goal {:.0f} %)\n",
      100 * median(shares), 100 * kShareGoal);
  context.result["expert_parallel"] = {
      {"of_one_rank", median(shares)}, {"goal", kShareGoal}, {"one", one}, {"two", two}};
}

}  // namespace

void bench_experts(BenchContext& context) {
  context.print("\n  {} tokens of width {} per rank, {} of {} experts per token; medians\n", kTokens, kWidth,
                kTopK, kExperts);
  dispatch(context);
  imbalance(context);
  share(context);
}

}  // namespace strata::benchmarks
