#include "program/predict.h"

#include "hardware/roofline.h"
#include "program/exchange.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace strata::program {
namespace {

using graph::kNone;
using graph::ValueId;

// The memory touched last, up to the size of the cache. Touches are numbered, and a sum tree over their
// numbers yields the bytes touched since any of them: a list of the cache's contents would be walked at every
// touch, and is long for small buffers.
class RecentMemory {
 public:
  RecentMemory(int64_t capacity, size_t most_touches)
      : capacity_(capacity), touches_(most_touches + 1), sums_(most_touches + 1) {}

  // Whether the whole of a buffer is still there; it is afterwards the newest.
  bool touch(int64_t address, int64_t bytes) {
    size_t& newest = newest_[address];
    bool whole = false;
    if (touches_[newest].is_held && all_ - sum_to(newest) + bytes <= capacity_) {
      whole = touches_[newest].bytes >= bytes;
      drop(newest);
    } else {
      for (; oldest_ <= now_; ++oldest_) {
        if (!touches_[oldest_].is_held) continue;
        if (all_ - touches_[oldest_].bytes + bytes <= capacity_) break;
        drop(oldest_);
      }
    }
    newest = ++now_;
    touches_[now_] = {bytes, true};
    add(now_, bytes);
    return whole;
  }

 private:
  struct Touch {
    int64_t bytes = 0;
    bool is_held = false;
  };

  void drop(size_t touch) {
    touches_[touch].is_held = false;
    add(touch, -touches_[touch].bytes);
  }
  void add(size_t touch, int64_t bytes) {
    all_ += bytes;
    for (size_t i = touch; i < sums_.size(); i += i & (~i + 1)) sums_[i] += bytes;
  }
  int64_t sum_to(size_t touch) const {
    int64_t sum = 0;
    for (size_t i = touch; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return sum;
  }

  int64_t capacity_, all_ = 0;
  std::vector<Touch> touches_;  // from 1 on; 0 is none
  std::vector<int64_t> sums_;
  std::unordered_map<int64_t, size_t> newest_;  // touch of each address
  size_t oldest_ = 1, now_ = 0;
};

// Address of an operand for an action; negative in the batch buffers, which are separate.
int64_t address_of(const Program& program, const Action& action, const Operand& operand) {
  if (operand.base == kInBatch) return -1 - (action.micro_batch * program.batch_bytes + operand.offset);
  if (!is_in_pool(operand.base)) return operand.offset;
  return program.pools[pool_of(operand.base)].offset_for(action) + operand.offset;
}

const std::vector<Instruction>& instructions_of(const Program& program, const Action& action) {
  return program.list_of(action);
}

// Touches an instruction's operands; how many bytes they have, and of how many the cache held nothing. A value that
// is updated counts once, as where rates of updates are measured: there the cache holds it by the time it is written.
struct Touched {
  double all = 0, cold = 0;
};
Touched touch(RecentMemory& recent, const Program& program, const Action& action,
              const Instruction& instruction) {
  Touched touched;
  const graph::Node& node = program.node_of(instruction);
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      const bool is_updated =
          ids == &node.outputs && std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
      if (id == kNone || is_updated) continue;
      const Place& place = program.places[static_cast<size_t>(id)];
      touched.all += static_cast<double>(place.bytes);
      if (!recent.touch(address_of(program, action, place.at), place.bytes))
        touched.cold += static_cast<double>(place.bytes);
    }
  }
  return touched;
}

// Seconds in which a node exchanges data with other ranks. `cold`: as hardware::exchange_seconds has it.
double exchange_time(const Program& program, const graph::Node& node, const hardware::Machine& machine,
                     DType payload, double cold) {
  const graph::Mesh& mesh = program.graph.mesh();
  if (!node.op->has_kernel()) {
    const NodeExchange exchange = exchange_of(program.graph, node, payload);
    hardware::Group group = group_along(mesh, exchange.axis);
    if (exchange.kind == hardware::Exchange::kSend)
      group = {2, group.stride * exchange.distance};
    else
      group.ranks = exchange.ranks;
    return hardware::exchange_seconds(machine.links, exchange.kind, group,
                                      static_cast<double>(exchange.bytes), cold);
  }
  if (node.op->ranks == nullptr) return 0;
  const graph::OpRanks ranks = node.op->ranks({program.graph, node});
  const hardware::Group group = group_over(mesh, ranks.axes);
  if (group.ranks <= 1) return 0;
  // What one has to give away includes its own part.
  const auto n = static_cast<double>(group.ranks);
  return hardware::exchange_seconds(machine.links, hardware::Exchange::kAllToAll, group,
                                    ranks.sent_bytes * n / (n - 1), cold);
}

std::vector<Expected> predict_action(const Program& program, const Action* before, const Action& action,
                                     const hardware::Machine& machine, DType payload) {
  const hardware::DeviceSpec& device = machine.device;
  size_t operands = 0;
  for (const Action* one : {before, &action}) {
    if (one == nullptr) continue;
    for (const Instruction& instruction : instructions_of(program, *one))
      operands += instruction.operand_count;
  }
  RecentMemory recent(hardware::cache_bytes(device), operands);
  if (before != nullptr) {
    for (const Instruction& instruction : instructions_of(program, *before)) {
      if (program.is_expected(instruction)) touch(recent, program, *before, instruction);
    }
  }
  std::vector<Expected> out;
  std::unordered_set<ValueId> written;
  for (const Instruction& instruction : instructions_of(program, action)) {
    const graph::Node& node = program.node_of(instruction);
    if (!program.is_expected(instruction)) {
      out.emplace_back();
      continue;
    }
    const graph::NodeView view{program.graph, node};
    const graph::Cost cost = node.op->cost(view);
    Expected expected{.flops = cost.flops, .bytes = cost.bytes};
    const Touched touched = touch(recent, program, action, instruction);
    bool adds = false;
    for (const ValueId id : node.outputs) {
      if (id == kNone || program.graph.value(id).role != graph::Role::kGradient) continue;
      const bool holds = action.accumulates || written.contains(id);
      written.insert(id);
      if (!holds) continue;
      adds = true;
      expected.bytes += graph::accumulator_bytes(cost, program.graph.value(id));
    }
    expected.cold_share = touched.all > 0 ? touched.cold / touched.all : 0;
    expected.exchange = exchange_time(program, node, machine, payload, expected.cold_share);
    expected.seconds = expected.exchange;
    if (node.op->has_kernel()) {
      expected.seconds += hardware::expected_seconds(
          device, node.op->name, graph::compute_dtype(view),
          {expected.flops, expected.bytes, cost.streamed_bytes, adds}, expected.cold_share);
    }
    out.push_back(expected);
  }
  return out;
}

std::vector<FamilyTotal> longest_first(const std::map<std::string_view, FamilyTotal>& totals) {
  std::vector<FamilyTotal> out;
  for (const auto& [name, entry] : totals) {
    out.push_back(entry);
    out.back().family = name;
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace

std::vector<Expected> predict(const Program& program, const SegmentAt& at, bool accumulates,
                              const hardware::Machine& machine, DType payload) {
  for (size_t i = 0; i < program.script.size(); ++i) {
    const Action& action = program.script[i];
    if (SegmentAt{action.segment, action.chunk} == at && action.accumulates == accumulates)
      return predict_action(program, i > 0 ? &program.script[i - 1] : nullptr, action, machine, payload);
  }
  return predict_action(program, nullptr, {at.segment, 0, accumulates, at.chunk}, machine, payload);
}

ActionCosts::ActionCosts(const Program& program, const hardware::Machine& machine, DType payload) {
  using Key = std::tuple<Segment, int32_t, bool, int, int32_t, bool, bool>;
  std::map<Key, size_t> known;
  for (size_t i = 0; i < program.script.size(); ++i) {
    const Action& action = program.script[i];
    const Action* before = i > 0 ? &program.script[i - 1] : nullptr;
    const Key key{action.segment,
                  action.chunk,
                  action.accumulates,
                  before != nullptr ? static_cast<int>(before->segment) : -1,
                  before != nullptr ? before->chunk : 0,
                  before != nullptr && before->accumulates,
                  before != nullptr && before->micro_batch == action.micro_batch};
    const auto [found, is_new] = known.try_emplace(key, kinds_.size());
    if (is_new) kinds_.push_back({i, 0, predict_action(program, before, action, machine, payload)});
    ++kinds_[found->second].times;
    kind_of_.push_back(found->second);
  }
}

StepTotal predict_step(const Program& program, const hardware::Machine& machine, DType payload) {
  StepTotal total;
  std::map<std::string_view, FamilyTotal> families, ops;
  const ActionCosts costs(program, machine, payload);
  for (const auto& [first, times, expected] : costs.kinds()) {
    const std::vector<Instruction>& instructions = instructions_of(program, program.script[first]);
    const auto n = static_cast<double>(times);
    for (size_t i = 0; i < expected.size(); ++i) {
      const graph::OpDef& op = *program.node_of(instructions[i]).op;
      for (FamilyTotal* entry : {&families[op.family], &ops[op.name]}) {
        entry->instructions += times;
        entry->flops += n * expected[i].flops;
        entry->bytes += n * expected[i].bytes;
        entry->seconds += n * expected[i].seconds;
      }
      total.flops += n * expected[i].flops;
      total.bytes += n * expected[i].bytes;
      total.seconds += n * expected[i].seconds;
    }
  }
  total.families = longest_first(families);
  total.ops = longest_first(ops);
  return total;
}

}  // namespace strata::program
