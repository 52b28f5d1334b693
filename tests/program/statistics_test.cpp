// Statistics of a step are those of the values that its instructions read, on one rank and on several.
#include "program/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "mesh_model.h"
#include "ops/statistics/statistics.h"
#include "program/metrics.h"

namespace strata::program {
namespace {

constexpr int64_t kAll = 7;  // groups

// Computes the same statistics on the host, from the operands of instructions as they run.
class Found final : public Executor::Observer {
 public:
  explicit Found(Executor& executor) : executor_(executor) { executor.observe(this); }
  ~Found() override { executor_.observe(nullptr); }
  bool wants_results() const override { return true; }

  void instruction(size_t program, const Action& action, size_t index, double, double) override {
    if (program != 0) return;
    const Instruction& instruction = executor_.program(0).list_of(action)[index];
    const graph::Node& node = executor_.program(0).node_of(instruction);
    if (node.op != &ops::Statistics::def) return;
    const auto& attrs = node.attrs.as<ops::StatisticsAttrs>();
    if (attrs.first && action.accumulates) return;
    const graph::Value& x = executor_.program(0).graph.value(node.inputs.front());
    std::vector<std::byte> bytes(static_cast<size_t>(x.bytes()));
    executor_.download_operand(0, action, instruction, 0, bytes.data(), x.bytes());
    const ops::Tensor tensor = ops::load(x, bytes.data());
    StatisticsTable& table = tables[node.outputs.front()];
    const int64_t columns = x.shape.rank() == 0 ? 1 : x.shape[x.shape.rank() - 1];
    int64_t begin = 0, end = columns;
    for (int64_t i = 0; i < attrs.part; ++i) begin += x.segments[static_cast<size_t>(i)];
    if (attrs.part >= 0) end = begin + x.segments[static_cast<size_t>(attrs.part)];
    double row = 0;
    for (int64_t i = 0; i < x.shape.elements(); ++i) {
      const int64_t c = i % columns;
      if (c < begin || c >= end) continue;
      const double value = tensor.values[static_cast<size_t>(i)];
      ++table.elements;
      table.sum += value;
      table.squares += value * value;
      table.greatest = std::max(table.greatest, std::abs(value));
      table.zeros += value == 0;
      if (attrs.row == 0) continue;
      row = (c - begin) % attrs.row == 0 ? value * value : row + value * value;
      table.row_squares = std::max(table.row_squares, row);
    }
  }

  std::map<graph::ValueId, StatisticsTable> tables;

 private:
  Executor& executor_;
};

void expect_equal(const StatisticsTable& table, const StatisticsTable& wanted, const std::string& name) {
  EXPECT_EQ(table.elements, wanted.elements) << name;
  EXPECT_EQ(table.zeros, wanted.zeros) << name;
  EXPECT_EQ(table.nonfinite, 0) << name;
  EXPECT_EQ(table.greatest, wanted.greatest) << name;
  EXPECT_NEAR(table.sum, wanted.sum, 1e-9 * (1 + std::abs(wanted.sum)) + 1e-6) << name;
  EXPECT_NEAR(table.squares, wanted.squares, 1e-9 * (1 + wanted.squares)) << name;
  EXPECT_NEAR(table.row_squares, wanted.row_squares, 1e-9 * (1 + wanted.row_squares)) << name;
}

std::string name_of(const Statistic& one) {
  return fmt::format("{} {} {}", name_of(one.what), one.layer, one.tensor);
}

StatisticsTable table_of(const Executor& executor, size_t index) {
  return Metric(executor, 0, graph::MetricKind::kStatistics, static_cast<int32_t>(index))
      .read<StatisticsTable>();
}

TEST(Statistics, AreThoseOfTheValuesThatInstructionsRead) {
  for (const char* preset : {"llama3-5m", "gpt2-124m", "gemma2-2b", "moe-30m-a10m"}) {
    CompileOptions options = tiny_options("llama3-5m");
    options.model = small_model(preset);
    Request request = tiny_request(3);
    for (const Backward backward : {Backward::kCombined, Backward::kSplit}) {
      options.backward = backward;
      TinyRun run(compile({request}, options));
      write_statistics_mask(run.executor, 0, kAll);
      const Found found(run.executor);
      run.step();
      const std::vector<Statistic>& list = run.executor.program(0).statistics;
      std::map<Watched, int> seen;
      for (size_t i = 0; i < list.size(); ++i) {
        ++seen[list[i].what];
        if (list[i].what == Watched::kUpdate) continue;  // another op
        const graph::ValueId value =
            run.executor.program(0).graph.metric(graph::MetricKind::kStatistics, static_cast<int32_t>(i));
        ASSERT_TRUE(found.tables.contains(value)) << name_of(list[i]);
        expect_equal(table_of(run.executor, i), found.tables.at(value), preset + (" " + name_of(list[i])));
      }
      const auto layers = static_cast<int>(options.model.blocks());
      EXPECT_EQ(seen[Watched::kStream], layers) << preset;
      EXPECT_EQ(seen[Watched::kQueries], layers) << preset;
      EXPECT_EQ(seen[Watched::kKeys], layers) << preset;
      EXPECT_EQ(seen[Watched::kHidden], 1) << preset;
      if (options.model.experts.count == 0) {
        EXPECT_EQ(seen[Watched::kActivation], layers) << preset;
      }
      const auto parameters = static_cast<int>(run.executor.program(0).graph.parameters().size());
      EXPECT_EQ(seen[Watched::kUpdate], parameters) << preset;
      EXPECT_EQ(seen[Watched::kFirstGradient], parameters) << preset;
      EXPECT_EQ(seen[Watched::kGradient], parameters) << preset;
    }
  }
}

TEST(Statistics, OfUpdatesAndFirstMicroBatches) {
  const CompileOptions options = tiny_options("llama3-5m");
  TinyRun run(compile({tiny_request(3)}, options)), first(compile({tiny_request(1)}, options));
  std::map<std::string, std::vector<float>> before;
  for (const graph::Parameter& parameter : run.executor.program(0).graph.parameters()) {
    const std::string& name = run.executor.program(0).graph.value(parameter.value).name;
    before[name] = run.executor.read_all<float>(name);
  }
  write_statistics_mask(run.executor, 0, kAll);
  write_statistics_mask(first.executor, 0, kAll);
  run.step();
  first.step();
  const std::vector<Statistic>& list = run.executor.program(0).statistics;
  std::map<std::string, double> first_squares;
  for (size_t i = 0; i < first.executor.program(0).statistics.size(); ++i) {
    const Statistic& one = first.executor.program(0).statistics[i];
    EXPECT_NE(one.what, Watched::kFirstGradient) << "of the only micro-batch";
    if (one.what == Watched::kGradient) first_squares[one.tensor] = table_of(first.executor, i).squares;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const StatisticsTable table = table_of(run.executor, i);
    if (list[i].what == Watched::kFirstGradient) {
      EXPECT_EQ(list[i].parts, 3);
      EXPECT_EQ(table.squares, first_squares.at(list[i].tensor)) << list[i].tensor;
    }
    if (list[i].what != Watched::kUpdate) continue;
    const std::vector<float>& old = before.at(list[i].tensor);
    const auto now = run.executor.read_all<float>(list[i].tensor);
    const auto n = std::ssize(old), m = std::min<int64_t>(n, ops::kMostSampled);
    double squares = 0;
    for (int64_t k = 0; k < m; ++k) {
      const auto at = static_cast<size_t>(k * n / m);
      squares += std::pow(double{now[at]} - double{old[at]}, 2);
    }
    EXPECT_EQ(table.elements, m);
    EXPECT_GT(table.squares, 0) << list[i].tensor;
    EXPECT_NEAR(table.squares, squares, 1e-12 * squares) << list[i].tensor;
  }
}

TEST(Statistics, AreOffUntilTheirGroupIsOn) {
  TinyRun on(compile({tiny_request(2)}, tiny_options("llama3-5m"))),
      off(compile({tiny_request(2)}, tiny_options("llama3-5m")));
  CompileOptions without = tiny_options("llama3-5m");
  without.statistics = false;
  TinyRun none(compile({tiny_request(2)}, without));
  write_statistics_mask(on.executor, 0, bit_of(StatisticsGroup::kActivations));
  for (TinyRun* run : {&on, &off, &none}) {
    run->step();
    run->step();
  }
  for (size_t i = 0; i < on.executor.program(0).statistics.size(); ++i) {
    const Statistic& one = on.executor.program(0).statistics[i];
    EXPECT_EQ(table_of(off.executor, i).elements, 0) << name_of(one);
    EXPECT_EQ(table_of(on.executor, i).elements > 0, one.group == StatisticsGroup::kActivations)
        << name_of(one);
  }
  // The results of the step are the same.
  for (const Persistent& entry : none.executor.set().persistent) {
    if (entry.role != graph::Role::kParameter && entry.role != graph::Role::kState) continue;
    EXPECT_EQ(on.executor.read_all<char>(entry.name), off.executor.read_all<char>(entry.name)) << entry.name;
    EXPECT_EQ(none.executor.read_all<char>(entry.name), off.executor.read_all<char>(entry.name))
        << entry.name;
  }
  for (const char* norm : {"grad_norm", "param_norm"})
    EXPECT_EQ(none.executor.read<float>(norm), on.executor.read<float>(norm));
  EXPECT_TRUE(none.executor.program(0).statistics.empty());
}

TEST(Statistics, DigestIsThatOfTheWeightsBits) {
  TinyRun a(compile({tiny_request()}, tiny_options("llama3-5m"))),
      b(compile({tiny_request()}, tiny_options("llama3-5m")));
  const auto digest = [](const TinyRun& run) {
    return Metric(run.executor, 0, graph::MetricKind::kWeightsDigest).read<int64_t>();
  };
  a.step();
  b.step();
  EXPECT_EQ(digest(a), digest(b));
  EXPECT_NE(digest(a), 0);
  const int64_t first = digest(a);
  a.step(0);
  EXPECT_EQ(digest(a), first) << "no change without a rate";
  a.step();
  EXPECT_NE(digest(a), first);
}

// --- On a mesh

using Key = std::tuple<Watched, int32_t, std::string>;
std::map<Key, StatisticsTable> tables_on(const CompileOptions& options) {
  std::mutex mutex;
  std::map<Key, StatisticsTable> sums;
  const MeshRanks ranks(
      compile({request_for(options.model, options.mesh.batch_ranks())}, options), 3,
      [&](Executor& executor, const graph::Coordinates& at) {
        fill_batch(executor, at);
        write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
        write_statistics_mask(executor, 0, kAll);
        const Found found(executor);
        executor.run_script(0);
        const std::lock_guard lock(mutex);
        const std::vector<Statistic>& list = executor.program(0).statistics;
        for (size_t i = 0; i < list.size(); ++i) {
          const Metric metric(executor, 0, graph::MetricKind::kStatistics, static_cast<int32_t>(i));
          const auto table = metric.read<StatisticsTable>();
          if (list[i].what != Watched::kUpdate) {
            const graph::ValueId value =
                executor.program(0).graph.metric(graph::MetricKind::kStatistics, static_cast<int32_t>(i));
            expect_equal(table, found.tables.at(value), name_of(list[i]));
          }
          if (metric.is_reported())
            add_statistics(sums[{list[i].what, list[i].layer, list[i].tensor}], table);
        }
      });
  return sums;
}

TEST(Statistics, OfAllRanksAreThoseOfOne) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model = small_model("llama3-5m");
  options.rule_of = steady_rule;
  const auto one = tables_on(options);
  ASSERT_FALSE(one.empty());
  struct Layout {
    const char* name;
    graph::Mesh mesh;
    int zero = 0;
    bool has_first = true;  // each rank has gradients of its part of the batch
  };
  using graph::Mesh;
  for (const Layout& layout :
       {Layout{"replicate2", Mesh::of(2, 1, 1, 1)}, Layout{"zero1", Mesh::of(1, 2, 1, 1), 1},
        Layout{"zero2", Mesh::of(1, 2, 1, 1), 2}, Layout{"zero3", Mesh::of(1, 2, 1, 1), 3},
        Layout{"tensor2", Mesh::of(1, 1, 1, 2)}, Layout{"context2", Mesh::of(1, 1, 2, 1), 0, false},
        Layout{"zero2_replicate2", Mesh::of(2, 2, 1, 1), 2}}) {
    options.mesh = layout.mesh;
    options.zero = layout.zero;
    const auto several = tables_on(options);
    int firsts = 0;
    for (const auto& [key, table] : several) {
      const auto& [what, layer, tensor] = key;
      const std::string name = fmt::format("{} {} {} {}", layout.name, name_of(what), layer, tensor);
      ASSERT_TRUE(one.contains(key)) << name;
      const StatisticsTable& wanted = one.at(key);
      if (what == Watched::kFirstGradient) {
        ++firsts;
        continue;  // of other parts
      }
      const double tolerance = what == Watched::kUpdate ? 0.2 : 1e-4;
      // Shards may be padded, and samples of updates differ in number.
      const bool is_sampled = what == Watched::kUpdate;
      const double share = table.squares / (is_sampled ? table.elements : 1),
                   of_one = wanted.squares / (is_sampled ? wanted.elements : 1);
      EXPECT_NEAR(share, of_one, tolerance * of_one) << name;
      if (what == Watched::kUpdate) continue;
      EXPECT_NEAR(table.greatest, wanted.greatest, 1e-4 * wanted.greatest) << name;
      EXPECT_NEAR(table.row_squares, wanted.row_squares, 1e-4 * wanted.row_squares) << name;
    }
    EXPECT_EQ(firsts > 0, layout.has_first) << layout.name;
    for (const auto& [key, table] : one) {
      const bool is_first = std::get<0>(key) == Watched::kFirstGradient;
      EXPECT_TRUE(is_first || several.contains(key)) << layout.name;
    }
  }
}

}  // namespace
}  // namespace strata::program
