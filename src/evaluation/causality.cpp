#include "evaluation/causality.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "comm/exchange.h"
#include "evaluation/evaluate.h"
#include "evaluation/row_comparison.h"
#include "program/metrics.h"
#include "program/pipeline.h"

namespace strata::evaluation {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

// Limit of the values measured in one pair of runs.
constexpr int64_t kMeasuredBytes = int64_t{1} << 30;

// A leak and its location in the step.
struct Source {
  int32_t stage = 0;  // of the pipeline
  int32_t node = 0;
  ValueId value = graph::kNone;
  Movement movement = {};
};

// Finds the nodes with results that changed although their inputs did not.
std::vector<Source> find_sources(const program::ProgramSet& set, const program::Program& program,
                                 const Movements& moved) {
  const Graph& graph = program.graph;
  std::vector<bool> reached(static_cast<size_t>(graph.value_count()), false);
  const auto is_reached = [&](ValueId id) {
    return id != graph::kNone && (reached[static_cast<size_t>(id)] ||
                                  reached[static_cast<size_t>(program::view_of(program.views, id).whole)]);
  };
  std::vector<Source> sources;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!runs_forward(node)) continue;
    const bool reads_moved = std::any_of(node.inputs.begin(), node.inputs.end(), is_reached);
    for (const ValueId id : node.outputs) {
      if (id == graph::kNone) continue;
      const auto found = moved.find(id);
      if (found != moved.end() && !reads_moved) {
        const int32_t stage = set.options.pipeline == nullptr
                                  ? 0
                                  : set.options.pipeline->stages()[static_cast<size_t>(node.chunk)];
        sources.push_back({stage, static_cast<int32_t>(i), id, found->second});
      }
      if (!reads_moved && found == moved.end()) continue;
      reached[static_cast<size_t>(id)] = true;
      reached[static_cast<size_t>(program::view_of(program.views, id).whole)] = true;
    }
  }
  return sources;
}

class Checker {
 public:
  Checker(program::Executor& executor, size_t index, const CausalityOptions& options)
      : executor_(executor),
        index_(index),
        options_(options),
        program_(executor.program(index)),
        rows_(find_token_rows(executor.set(), program_, executor.ranks().coordinates())),
        shape_(probe_shape(executor.set(), program_, options.documents)),
        loss_(program_.graph.metric(graph::MetricKind::kLossSum)),
        loss_sum_(executor, index, graph::MetricKind::kLossSum) {}

  Causality check() {
    Causality result;
    const std::vector<int64_t> positions =
        probe_positions(shape_.row.tokens, std::max<int64_t>(1, options_.positions), options_.seed);
    result.positions = std::ssize(positions);
    result.probes = (result.positions + shape_.rows() - 1) / shape_.rows();
    result.values = rows_.values;
    result.unseen = rows_.unseen;
    for (int64_t probe = 0; probe < result.probes; ++probe) {
      add_leaks(make_probe(shape_, positions, probe * shape_.rows(), options_.seed), result.leaks);
      if (options_.progress)
        options_.progress(static_cast<double>(probe + 1) / static_cast<double>(result.probes));
    }
    return result;
  }

 private:
  // The texts of all ranks, by rank.
  std::vector<std::string> gathered(const std::string& text) const {
    return comm::gather_texts(executor_.ranks().all(), text);
  }
  bool any_rank(bool here) const {
    const auto all = gathered(here ? "1" : "");
    return std::any_of(all.begin(), all.end(), [](const std::string& one) { return !one.empty(); });
  }
  int32_t place() const {
    return executor_.set().options.pipeline == nullptr ? 0 : executor_.set().options.pipeline->rank;
  }

  // The sum of losses of the micro-batches.
  double run(const data::HostBatch& batch, RowObserver& observer) {
    const int64_t part = executor_.ranks().batch_part();
    for (int64_t m = 0; m < shape_.micro_batches; ++m)
      executor_.upload_rows(index_, batch.rows(shape_.row),
                            m * shape_.sequences + part * program_.request.sequences, m);
    executor_.observe(&observer);
    try {
      executor_.run_micro_batches(index_);
    } catch (...) {
      executor_.observe(nullptr);
      throw;
    }
    executor_.observe(nullptr);
    return loss_sum_.is_here() ? loss_sum_.read<double>() : 0;
  }

  template <typename Observer>
  Movements run_twice(const Probe& probe, Observer& observer, Movement* loss) {
    const double before = run(probe.before, observer);
    observer.begin_second_run(probe);
    const double after = run(probe.after, observer);
    if (loss != nullptr && std::bit_cast<uint64_t>(before) != std::bit_cast<uint64_t>(after)) {
      const double moved = std::abs(before - after);
      *loss = {.largest = std::isfinite(moved) ? moved : std::numeric_limits<double>::max()};
    }
    return observer.take();
  }

  // The largest movement of each value over all ranks that run the same program.
  Movements of_all_ranks(const Movements& mine) const {
    std::ostringstream text;
    text.precision(17);
    for (const auto& [value, m] : mine)
      text << place() << ' ' << value << ' ' << m.micro_batch << ' ' << m.sequence << ' ' << m.row << ' '
           << m.largest << '\n';
    Movements all;
    for (const std::string& one : gathered(text.str())) {
      std::istringstream words(one);
      int32_t where = 0;
      ValueId value = graph::kNone;
      for (Movement m; words >> where >> value >> m.micro_batch >> m.sequence >> m.row >> m.largest;) {
        if (where != place()) continue;
        const auto [known, is_new] = all.try_emplace(value, m);
        if (!is_new && known->second.largest < m.largest) known->second = m;
      }
    }
    return all;
  }

  // Measures how much the rows of `wanted` move, in several pairs of runs if they do not fit into memory.
  Movements measured(const Probe& probe, Movements wanted) {
    Movements out;
    while (any_rank(!wanted.empty())) {
      Movements now;
      for (int64_t bytes = 0; !wanted.empty() && (now.empty() || bytes < kMeasuredBytes);) {
        bytes += program_.graph.value(wanted.begin()->first).bytes();
        now.insert(wanted.extract(wanted.begin()));
      }
      MeasuredRows observer(executor_, index_, rows_, std::move(now));
      out.merge(run_twice(probe, observer, nullptr));
    }
    return out;
  }

  void add_leaks(const Probe& probe, std::vector<Leak>& leaks) {
    MovedRows observer(executor_, index_, rows_);
    Movement loss;
    Movements moved = run_twice(probe, observer, &loss);
    if (loss.largest > 0) moved[loss_] = loss;
    if (!any_rank(!moved.empty())) return;
    Movements wanted;
    for (const Source& source : sources_of(of_all_ranks(moved))) {
      // A rank measures only its own movements.
      if (const auto here = moved.find(source.value); here != moved.end()) wanted.insert(*here);
    }
    const std::vector<Source> sources =
        sources_of(of_all_ranks(measured_with_loss(probe, std::move(wanted))));
    merge(first_stage(sources), probe, leaks);
  }

  std::vector<Source> sources_of(const Movements& moved) const {
    return find_sources(executor_.set(), program_, moved);
  }

  // The movement of the loss is known from the first two runs.
  Movements measured_with_loss(const Probe& probe, Movements moved) {
    std::optional<Movement> loss;
    if (const auto found = moved.find(loss_); found != moved.end()) {
      loss = found->second;
      moved.erase(found);
    }
    Movements sizes = measured(probe, std::move(moved));
    if (loss) sizes[loss_] = *loss;
    return sizes;
  }

  // The sources that all ranks have found, in the first pipeline stage with any: later stages read its
  // results.
  std::vector<std::pair<std::tuple<int32_t, int32_t>, Leak>> first_stage(
      const std::vector<Source>& sources) const {
    std::ostringstream text;
    text.precision(17);
    for (const Source& source : sources) {
      const Node& node = program_.graph.nodes()[static_cast<size_t>(source.node)];
      const Movement& m = source.movement;
      const std::string& name = program_.graph.value(source.value).name;
      text << source.stage << ' ' << source.node << ' ' << node.op->name << ' ' << node.layer << ' '
           << m.micro_batch << ' ' << m.sequence << ' ' << m.row << ' ' << m.largest << ' '
           << (name.empty() ? "-" : name) << '\n';
    }
    std::vector<std::pair<std::tuple<int32_t, int32_t>, Leak>> all;
    for (const std::string& one : gathered(text.str())) {
      std::istringstream words(one);
      int32_t stage = 0, node = 0;
      for (Leak leak; words >> stage >> node >> leak.op >> leak.layer >> leak.micro_batch >> leak.sequence >>
                      leak.row >> leak.largest >> leak.value;)
        all.emplace_back(std::tuple(stage, node), leak);
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const int32_t first = all.empty() ? 0 : std::get<0>(all.front().first);
    std::erase_if(all, [&](const auto& one) { return std::get<0>(one.first) > first; });
    return all;
  }

  void merge(const std::vector<std::pair<std::tuple<int32_t, int32_t>, Leak>>& found, const Probe& probe,
             std::vector<Leak>& leaks) const {
    for (const auto& entry : found) {
      const Leak& leak = entry.second;
      const auto known = std::find_if(leaks.begin(), leaks.end(), [&](const Leak& one) {
        return one.op == leak.op && one.layer == leak.layer;
      });
      if (known != leaks.end()) {
        known->largest = std::max(known->largest, leak.largest);
        continue;
      }
      leaks.push_back(leak);
      leaks.back().in_loss = leak.value == "loss_sum";
      if (leaks.back().in_loss) continue;
      const Probe::Change& change =
          probe.changes[static_cast<size_t>(leak.micro_batch * shape_.sequences + leak.sequence)];
      leaks.back().changed_from = change.from;
      leaks.back().changed_to = change.to;
    }
  }

  program::Executor& executor_;
  const size_t index_;
  const CausalityOptions& options_;
  const program::Program& program_;
  const ProgramRows rows_;
  const ProbeShape shape_;
  const ValueId loss_;
  const program::Metric loss_sum_;
};

}  // namespace

void require_causal_design(const models::ModelConfig& model) {
  if (model.architecture == models::Architecture::kEncoder) {
    throw ConfigError(
        "[check causality] {} is an encoder, whose tokens see later ones by design: expected a decoder or an "
        "encoder-decoder",
        model.family->name);
  }
  if (model.vocab_size < 2)
    throw ConfigError("[check causality] found a vocabulary of {}: expected at least 2 tokens",
                      model.vocab_size);
}

Causality check_causality(program::Executor& executor, size_t index, const CausalityOptions& options) {
  require_causal_design(executor.set().options.model);
  const program::Kind kind = executor.program(index).request.kind;
  STRATA_CHECK(kind == program::Kind::kTrain || kind == program::Kind::kEvaluate,
               "a program of kind {} has no whole sequences", name_of(kind));
  return Checker(executor, index, options).check();
}

}  // namespace strata::evaluation
