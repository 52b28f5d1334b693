#include "library/layer_programs.h"

#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "config/pipeline.h"
#include "device/open/open.h"
#include "hardware/roofline.h"
#include "plan/pipeline_walk.h"
#include "plan/row_job.h"
#include "program/exchange.h"
#include "program/program.h"

namespace strata::library {
namespace {

using planning::ClusterSpec;
using planning::LayerCost;
using planning::TrainingJob;
using program::Segment;

constexpr int64_t kVocabulary = 64;       // so small that no buffer of the head counts
constexpr int32_t kFewer = 2, kMore = 3;  // layers of the two models
constexpr int64_t kFewestRows = 64;       // of a part that overlaps (program/row_chunks.h)

// An instruction of a micro-batch. Its work grows with the sequences of the micro-batch; reads of weights and sums of
// their gradients do not.
struct Work {
  std::string_view op;
  std::string dtype;
  double flops = 0, bytes = 0, streamed_bytes = 0, fixed_bytes = 0;
  bool adds = false;
  // Of the communication queue.
  bool exchanges = false, along_tensor = false;
  hardware::Exchange kind = {};
  hardware::Group group = {};
  double sent = 0;
  std::vector<int32_t> waits;
};

// What a program does for a later micro-batch, and holds for it.
struct Measured {
  double parameters = 0, multiplied = 0;
  std::map<Segment, std::vector<Work>> lists;
  std::map<std::string, double> pools;  // bytes of an entry
  double workspace = 0;
};

// Sums over the segments of a micro-batch.
struct Totals {
  std::map<Segment, double> seconds;
  double computing = 0;            // kernels
  double tensor = 0, context = 0;  // exchanges, hidden or not
  double tensor_sent = 0, context_sent = 0;
  double updating = 0;
};

program::Recompute recompute_of(planning::Recompute recompute) {
  if (recompute == planning::Recompute::kSelective) return program::Recompute::kSelective;
  if (recompute == planning::Recompute::kFull) return program::Recompute::kFull;
  return program::Recompute::kNone;
}

// Two micro-batches. Actions alternate as in a pipeline, whose ranks hold several micro-batches.
program::Script order_of(bool alternates, program::Backward backward) {
  if (!alternates) return {};
  const auto segments = backward == program::Backward::kCombined
                            ? std::vector{Segment::kForward, Segment::kBackward}
                            : std::vector{Segment::kForward, Segment::kInputGrad, Segment::kWeightGrad};
  program::Script order;
  for (const Segment segment : segments)
    for (int32_t i = 0; i < 2; ++i) order.push_back({.segment = segment, .micro_batch = i});
  return order;
}

class LayerPrograms final : public planning::LayerCosts {
 public:
  LayerPrograms(const models::ModelConfig& model, std::vector<ProgramKind> kinds)
      : whole_(model), model_(model), kinds_(std::move(kinds)) {
    model_.vocab_size = kVocabulary;
    model_.pad_id = std::nullopt;
    model_.predict_layers = 0;
    model_.experts = {};
  }

  LayerCost of(int32_t kind, const TrainingJob& job, const ClusterSpec& cluster) const override {
    const planning::Layout& layout = job.layout;
    // Enough rows for each part that overlaps exchanges.
    const int64_t chunks = layout.tensor > 1 ? layout.overlap_chunks : 1;
    const int64_t rows = job.sequence / (layout.context * layout.tensor * chunks);
    const int64_t sequences = std::max<int64_t>(1, kFewestRows / std::max<int64_t>(1, rows));
    const Key key{kind,
                  layout.tensor,
                  layout.context,
                  chunks,
                  job.sequence,
                  layout.pipeline > 1,
                  planning::splits_backward(layout),
                  layout.recompute,
                  job.precision == planning::Precision::kFp32};
    const std::lock_guard lock(mutex_);
    if (!priced_on_ || *priced_on_ != cluster) {
      priced_on_ = cluster;
      machine_.emplace(cluster, layout.devices());
      costs_.clear();
    }
    const auto [found, is_new] = costs_.try_emplace({key, layout.micro_batch});
    if (!is_new) return found->second;
    auto pair = pairs_.find(key);
    if (pair == pairs_.end()) {
      Pair made{.fewer = compile(kind, kFewer, job, sequences, *machine_),
                .more = compile(kind, kMore, job, sequences, *machine_),
                .sequences = static_cast<double>(sequences)};
      made.grows = compile(kind, kFewer, job, 2 * sequences, *machine_).workspace - made.fewer.workspace;
      pair = pairs_.emplace(key, std::move(made)).first;
    }
    return found->second = cost(pair->second, static_cast<double>(layout.micro_batch), *machine_);
  }

  std::vector<double> flops(int64_t sequence) const override {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = flops_.try_emplace(sequence);
    if (is_new) {
      found->second = config::costs_of_parts(whole_, sequence).layers;
    }
    return found->second;
  }

  std::string refusal(const TrainingJob& job, const ClusterSpec& cluster) const override {
    try {
      for (size_t kind = 0; kind < kinds_.size(); ++kind) of(static_cast<int32_t>(kind), job, cluster);
    } catch (const ConfigError& error) {
      const std::lock_guard lock(mutex_);
      costs_.clear();
      return error.what();
    }
    return "";
  }

 private:
  using Key = std::tuple<int32_t, int64_t, int64_t, int64_t, int64_t, bool, bool, planning::Recompute, bool>;
  // `sequences`: of their micro-batches. Scratch does not grow with these: `grows` is what doubling them adds.
  struct Pair {
    Measured fewer, more;
    double sequences = 1, grows = 0;
  };

  models::ModelConfig with_layers(int32_t kind, int32_t layers) const {
    const ProgramKind& of = kinds_[static_cast<size_t>(kind)];
    models::ModelConfig out = model_;
    out.layers = layers;
    out.layer_kinds.assign(model_.layer_kinds.empty() ? 0 : static_cast<size_t>(layers), of.kind);
    out.without_indexer.clear();
    if (of.has_own_indexer) return out;
    // The first layer makes the choice that they take.
    out.without_indexer.assign(static_cast<size_t>(layers), true);
    out.without_indexer.front() = false;
    return out;
  }

  Measured compile(int32_t kind, int32_t layers, const TrainingJob& job, int64_t sequences,
                   const hardware::Machine& machine) const {
    const planning::Layout& layout = job.layout;
    program::CompileOptions options;
    options.model = with_layers(kind, layers);
    options.activations = job.precision == planning::Precision::kFp32 ? DType::kF32 : DType::kBF16;
    options.rule_of = [](const std::string&, graph::ParameterRole) { return optim::one_rule({}); };
    options.recompute = recompute_of(layout.recompute);
    if (planning::splits_backward(layout)) options.backward = program::Backward::kSplit;
    options.target = device::target_for(machine.device);
    options.mesh = graph::Mesh::of(1, 1, layout.context, layout.tensor);
    options.overlap_chunks = layout.tensor > 1 ? layout.overlap_chunks : 1;
    const program::Request request{.sequences = sequences,
                                   .sequence_length = job.sequence,
                                   .micro_batches = 2,
                                   .order = order_of(layout.pipeline > 1, options.backward)};
    return measured(*program::compile_any({request}, options).set);
  }

  static Measured measured(const program::ProgramSet& set) {
    const program::Program& program = set.programs.front();
    Measured out;
    for (const program::Persistent& entry : set.persistent) {
      if (entry.role == graph::Role::kParameter) out.parameters += static_cast<double>(entry.bytes) / 4;
      if (entry.role == graph::Role::kEncoded) out.multiplied += static_cast<double>(entry.bytes) / 2;
    }
    for (const program::Action& action : program.script) {
      const bool updates = action.segment == Segment::kUpdate;
      if (!updates && (!program::is_of_micro_batch(action.segment) || action.micro_batch == 0)) continue;
      for (const program::Instruction& instruction : program.list_of(action))
        out.lists[action.segment].push_back(work_of(program, instruction, set.options));
    }
    for (const program::Pool& pool : program.pools)
      out.pools[pool.name] += static_cast<double>(pool.slot_bytes);
    out.workspace = static_cast<double>(program.workspace.bytes);
    return out;
  }

  static Work work_of(const program::Program& program, const program::Instruction& instruction,
                      const program::CompileOptions& options) {
    const graph::Node& node = program.node_of(instruction);
    const graph::NodeView view{program.graph, node};
    const std::span<const int32_t> waits = program.waits_of(instruction);
    Work out;
    out.op = node.op->name;
    out.waits.assign(waits.begin(), waits.end());
    if (!node.op->has_kernel()) {
      const program::NodeExchange exchange = program::exchange_of(program.graph, node, options.reduce_dtype);
      out.exchanges = true;
      out.along_tensor = exchange.axis == graph::Axis::kTensor;
      out.kind = exchange.kind;
      out.group = program::group_along(options.mesh, exchange.axis);
      out.group.ranks = exchange.ranks;
      out.bytes = static_cast<double>(exchange.bytes);
      out.sent = static_cast<double>(exchange.sent_bytes);
      return out;
    }
    const graph::Cost cost = node.op->cost(view);
    out.dtype = graph::compute_dtype(view);
    out.flops = cost.flops;
    out.streamed_bytes = cost.streamed_bytes;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const graph::ValueId id : *ids) {
        if (id == graph::kNone || program.graph.value(id).role == graph::Role::kActivation) continue;
        out.fixed_bytes += static_cast<double>(program.graph.value(id).bytes());
      }
    }
    out.fixed_bytes = std::min(out.fixed_bytes, cost.bytes);
    out.bytes = cost.bytes - out.fixed_bytes;
    for (const graph::ValueId id : node.outputs) {
      if (id == graph::kNone || program.graph.value(id).role != graph::Role::kGradient) continue;
      out.adds = true;
      out.fixed_bytes += graph::accumulator_bytes(cost, program.graph.value(id));
    }
    return out;
  }

  // For a micro-batch of `times` the sequences. The queues run as in program/price.h.
  static Totals totals(const Measured& measured, double times, const hardware::Machine& machine) {
    Totals out;
    for (const auto& [segment, list] : measured.lists) {
      const bool updates = segment == Segment::kUpdate;
      double compute = 0, communication = 0;
      std::vector<double> done(list.size());
      for (size_t i = 0; i < list.size(); ++i) {
        const Work& work = list[i];
        double ready = 0;
        for (const int32_t other : work.waits) ready = std::max(ready, done[static_cast<size_t>(other)]);
        if (work.exchanges) {
          const double seconds =
              hardware::exchange_seconds(machine.links, work.kind, work.group, times * work.bytes);
          const hardware::LinkLevel* const level = hardware::outermost(machine.links, work.group);
          if (level != nullptr) compute += seconds * level->compute_share.value;
          communication = std::max(ready, communication) + seconds;
          done[i] = communication;
          if (updates) continue;
          (work.along_tensor ? out.tensor : out.context) += seconds;
          (work.along_tensor ? out.tensor_sent : out.context_sent) += times * work.sent;
          continue;
        }
        const double seconds = hardware::expected_seconds(
            machine.device, work.op, work.dtype,
            {times * work.flops, times * work.bytes + work.fixed_bytes, work.streamed_bytes, work.adds}, 1);
        compute = std::max(compute, ready) + seconds;
        done[i] = compute;
        if (!updates) out.computing += seconds;
        if (updates && seconds <= machine.device.launch_seconds) out.updating += seconds;
      }
      // A segment ends with its exchanges done.
      if (!updates) out.seconds[segment] = std::max(compute, communication);
    }
    return out;
  }

  static LayerCost cost(const Pair& pair, double sequences, const hardware::Machine& machine) {
    const auto& fewer = pair.fewer;
    const auto& more = pair.more;
    const double times = sequences / pair.sequences;
    const Totals before = totals(fewer, times, machine), after = totals(more, times, machine);
    const auto added = [&](double Totals::*part) { return std::max(0.0, after.*part - before.*part); };
    const auto seconds = [&](Segment segment) {
      const auto at = after.seconds.find(segment);
      return at == after.seconds.end() ? 0.0 : std::max(0.0, at->second - before.seconds.at(segment));
    };
    const auto entry = [&](const char* pool) {
      const auto at = more.pools.find(pool), first = fewer.pools.find(pool);
      if (at == more.pools.end()) return 0.0;
      return times * std::max(0.0, at->second - (first == fewer.pools.end() ? 0 : first->second));
    };
    LayerCost out;
    out.parameters = more.parameters - fewer.parameters;
    out.multiplied = more.multiplied - fewer.multiplied;
    out.forward = seconds(Segment::kForward);
    out.input_grad = seconds(Segment::kBackward) + seconds(Segment::kInputGrad);
    out.weight_grad = seconds(Segment::kWeightGrad);
    const double exchanged = added(&Totals::tensor) + added(&Totals::context);
    if (exchanged > 0) {
      const double waits =
          std::max(0.0, out.forward + out.input_grad + out.weight_grad - added(&Totals::computing));
      out.tensor = waits * added(&Totals::tensor) / exchanged;
      out.context = waits * added(&Totals::context) / exchanged;
    }
    out.updating = added(&Totals::updating);
    out.to_input = entry("F→I") + entry("F→B");
    out.to_weight = entry("F→W");
    out.input_to_weight = entry("I→W");
    out.action = fewer.workspace + (times - 1) * pair.grows;
    out.kept = times * std::max(0.0, more.workspace - fewer.workspace);
    out.working = std::max(0.0, out.action - kFewer * out.kept);
    out.tensor_sent = added(&Totals::tensor_sent);
    out.context_sent = added(&Totals::context_sent);
    return out;
  }

  models::ModelConfig whole_, model_;  // the model, and what small ones are made of
  std::vector<ProgramKind> kinds_;
  mutable std::mutex mutex_;
  mutable std::map<Key, Pair> pairs_;
  mutable std::map<std::pair<Key, int64_t>, LayerCost> costs_;  // by key and sequences of a micro-batch
  mutable std::optional<hardware::Machine> machine_;            // of priced_on_
  mutable std::optional<ClusterSpec> priced_on_;
  mutable std::map<int64_t, std::vector<double>> flops_;  // by length of a sequence
};

}  // namespace

std::unique_ptr<const planning::LayerCosts> layer_programs(const models::ModelConfig& model,
                                                           std::vector<ProgramKind> kinds) {
  return std::make_unique<LayerPrograms>(model, std::move(kinds));
}

}  // namespace strata::library
