#include "train/step_digests.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "ops/recurrence/recurrence.h"

namespace strata::training {
namespace {

// The first element that is a NaN or an infinity; -1: there is none.
template <typename T>
int64_t first_nonfinite_of(const std::byte* bytes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if (!std::isfinite(value)) return i;
  }
  return -1;
}

int64_t first_nonfinite_of(DType dtype, const std::byte* bytes, int64_t size) {
  switch (dtype) {
    case DType::kF32:
      return first_nonfinite_of<float>(bytes, size / 4);
    case DType::kF64:
      return first_nonfinite_of<double>(bytes, size / 8);
    case DType::kBF16:
    case DType::kF16: {
      const uint16_t exponent = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;  // of NaN and infinity
      for (int64_t i = 0; i < size / 2; ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, bytes + 2 * i, 2);
        if ((bits & exponent) == exponent) return i;
      }
      return -1;
    }
    default:
      return -1;
  }
}

// Where in its sequence an element of [N, columns] is, and of which head if a recurrence made it: its state has become
// a NaN there.
std::string place_of(const graph::Node& node, const graph::Value& value, const program::Request& request,
                     int64_t element) {
  const int64_t rows = request.sequences * request.sequence_length;
  if (value.shape.rank() != 2 || value.shape[0] != rows) return "";
  const int64_t columns = value.shape[1], row = element / columns;
  std::string text =
      fmt::format(", sequence {}, position {}", row / request.sequence_length, row % request.sequence_length);
  if (node.op == &ops::Recurrence::def)
    text += fmt::format(", head {}", element % columns / node.attrs.as<ops::RecurrenceAttrs>().value_dim);
  return text;
}

}  // namespace

StepDigests::StepDigests(program::Executor& executor, size_t program)
    : executor_(executor), program_(program) {
  executor_.observe(this);
}

StepDigests::~StepDigests() {
  executor_.observe(nullptr);
}

void StepDigests::instruction(size_t program, const program::Action& action, size_t index, double, double) {
  if (program != program_) return;
  const program::Program& held = executor_.program(program);
  const program::Instruction& instruction = held.list_of(action)[index];
  const graph::Node& node = held.node_of(instruction);
  if (node.op->family == "statistics") return;  // in most steps they are off and write nothing
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (node.outputs[o] == graph::kNone) continue;
    const graph::Value& value = held.graph.value(node.outputs[o]);
    const int64_t bytes = value.bytes();
    bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(bytes)));
    executor_.download_operand(program, action, instruction, node.inputs.size() + o, bytes_.data(), bytes);
    rows_.push_back(
        {.digest = hash64({reinterpret_cast<const char*>(bytes_.data()), static_cast<size_t>(bytes)}),
         .nonfinite = first_nonfinite_of(value.dtype, bytes_.data(), bytes),
         .action = action,
         .node = instruction.node,
         .output = static_cast<int32_t>(o)});
  }
}

ComputedValue StepDigests::value_of(size_t at) const {
  const Row& row = rows_[at];
  const program::Program& held = executor_.program(program_);
  const graph::Node& node = held.graph.nodes()[static_cast<size_t>(row.node)];
  const graph::Value& value = held.graph.value(node.outputs[static_cast<size_t>(row.output)]);
  std::string layer = node.layer == graph::kNone ? "" : fmt::format("L{} ", node.layer);
  return {.instruction = fmt::format("{}: {}{}", program::str(row.action), layer, node.op->name),
          .tensor = value.name,
          .layer = node.layer == graph::kNone ? -1 : node.layer,
          .micro_batch = is_of_micro_batch(row.action.segment) ? row.action.micro_batch : -1,
          .place = static_cast<int64_t>(at)};
}

std::optional<ComputedValue> StepDigests::first_difference(const StepDigests& other) const {
  const auto [mine, theirs] =
      std::mismatch(rows_.begin(), rows_.end(), other.rows_.begin(), other.rows_.end());
  if (mine == rows_.end()) return std::nullopt;
  return value_of(static_cast<size_t>(mine - rows_.begin()));
}

std::optional<ComputedValue> StepDigests::first_nonfinite() const {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.nonfinite >= 0; });
  if (found == rows_.end()) return std::nullopt;
  ComputedValue first = value_of(static_cast<size_t>(found - rows_.begin()));
  const program::Program& held = executor_.program(program_);
  const graph::Node& node = held.graph.nodes()[static_cast<size_t>(found->node)];
  const graph::Value& value = held.graph.value(node.outputs[static_cast<size_t>(found->output)]);
  first.instruction += place_of(node, value, held.request, found->nonfinite);
  return first;
}

}  // namespace strata::training
