#include "program/predict.h"

#include "hardware/roofline.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace strata::program {
namespace {

using graph::kNone;
using graph::ValueId;

// The memory that was touched last, as far as the cache holds it. Touches are numbered, and a tree of sums
// over their numbers says how many bytes were touched since one of them: a list of what the cache holds would
// be walked at every touch, and is long where buffers are small.
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

bool in_steady_step(Kind kind, Segment segment) {
  if (segment == Segment::kSetup) return false;
  return kind == Kind::kTrain || segment != Segment::kEncode;
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

std::vector<Expected> predict(const Program& program, Segment segment, const hardware::DeviceSpec& device) {
  size_t operands = 0;
  for (const Instruction& instruction : program.segment(segment)) operands += instruction.operand_count;
  RecentMemory recent(hardware::cache_bytes(device), operands);
  std::vector<Expected> out;
  std::unordered_set<ValueId> written;
  for (const Instruction& instruction : program.segment(segment)) {
    const graph::Node& node = program.graph.nodes()[static_cast<size_t>(instruction.node)];
    const graph::NodeView view{program.graph, node};
    const graph::Cost cost = node.op->cost(view);
    Expected expected{cost.flops, cost.bytes, 0, 0};
    double all = 0, cold = 0;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id == kNone) continue;
        const Place& place = program.places[static_cast<size_t>(id)];
        const bool held = recent.touch(place.at.offset * 2 + (place.at.base == Base::kBatch), place.bytes);
        all += static_cast<double>(place.bytes);
        if (!held) cold += static_cast<double>(place.bytes);
        if (ids != &node.outputs || program.graph.value(id).role != graph::Role::kGradient) continue;
        const bool holds = segment == Segment::kLater || written.contains(id);
        written.insert(id);
        if (!holds) continue;
        // An accumulator is read too, and never cleared.
        expected.bytes += cost.cleared_bytes > 0 ? -cost.cleared_bytes : static_cast<double>(place.bytes);
      }
    }
    expected.cold_share = all > 0 ? cold / all : 0;
    expected.seconds = hardware::expected_seconds(device, node.op->name, graph::compute_dtype(view),
                                                  expected.flops, expected.bytes, expected.cold_share);
    out.push_back(expected);
  }
  return out;
}

StepTotal predict_step(const Program& program, const hardware::DeviceSpec& device) {
  StepTotal total;
  std::map<std::string_view, FamilyTotal> families, ops;
  for (int s = 0; s < kSegments; ++s) {
    const auto segment = static_cast<Segment>(s);
    if (!in_steady_step(program.request.kind, segment)) continue;
    const int64_t times = segment == Segment::kLater ? program.request.micro_batches - 1 : 1;
    if (times == 0) continue;
    const std::vector<Expected> expected = predict(program, segment, device);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto node = static_cast<size_t>(program.segment(segment)[i].node);
      const graph::OpDef& op = *program.graph.nodes()[node].op;
      const auto n = static_cast<double>(times);
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
