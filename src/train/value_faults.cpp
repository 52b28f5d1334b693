#include "train/value_faults.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "base/random.h"
#include "graph/shard.h"
#include "graph/zero.h"
#include "ops/statistics/statistics.h"

namespace strata::training {
namespace {

using program::Instruction;

constexpr uint32_t kTokenStream = 0x67617262;  // "garb"

// The bits of one element.
void change(std::byte* element, DType dtype, const ElementFault& fault) {
  const auto bytes = static_cast<size_t>(size_of(dtype));
  uint32_t bits = 0;
  std::memcpy(&bits, element, bytes);
  switch (fault.kind) {
    case ElementFault::Kind::kFlip:
      bits ^= uint32_t{1} << (fault.draw >> 32) % (8 * bytes);
      break;
    case ElementFault::Kind::kNan:
      bits = dtype == DType::kF32 ? 0x7fc00000 : dtype == DType::kBF16 ? 0x7fc0 : 0x7e00;
      break;
    case ElementFault::Kind::kInf:
      bits = dtype == DType::kF32 ? 0x7f800000 : dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
      break;
  }
  std::memcpy(element, &bits, bytes);
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Calls visit(first element in the whole weight, first element here, count) for every run of elements that a
// rank holds.
template <typename Visit>
void for_each_run(const graph::Value& value, const program::Ranks& ranks, const Visit& visit) {
  const auto held = graph::held_spans(value, ranks.mesh(), ranks.coordinates());
  const Shape& whole = value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
  const int64_t columns = whole.elements() / whole[0], width = value.shape.elements() / value.shape[0];
  const std::vector<graph::HeldSpan> all{{{0, columns}, 0}};
  for (const graph::HeldSpan& rows : held[0]) {
    for (int64_t row = 0; row < rows.whole.size(); ++row) {
      for (const graph::HeldSpan& span : width == columns ? all : held[1]) {
        visit((rows.whole.begin + row) * columns + span.whole.begin, (rows.at + row) * width + span.at,
              span.whole.size());
      }
    }
  }
}

// The element of this rank's shard that is changed: the first that is not zero (as padding is) from the middle
// on, or the drawn one.
int64_t element_of(const std::vector<float>& values, const ElementFault& fault) {
  const auto count = std::ssize(values);
  if (fault.kind == ElementFault::Kind::kFlip)
    return static_cast<int64_t>((fault.draw & 0xffffffff) % static_cast<uint64_t>(count));
  const auto middle = values.begin() + count / 2;
  const auto found = std::find_if(middle, values.end(), [](float value) { return value != 0; });
  return found == values.end() ? 0 : found - values.begin();
}

// Whether every token passes it.
bool all_tokens_pass(const graph::Parameter& parameter) {
  using enum graph::ParameterRole;
  return parameter.role == kAttentionIn || parameter.role == kLatentIn || parameter.role == kFfnIn;
}

const graph::Parameter& choose_weight(const graph::Graph& graph, const ElementFault& fault) {
  const auto& all = graph.parameters();
  if (fault.kind == ElementFault::Kind::kFlip) return all[(fault.draw >> 40) % all.size()];
  const auto found = std::find_if(all.begin(), all.end(), all_tokens_pass);
  return found == all.end() ? all.front() : *found;
}

// The first output of an instruction of the action that has a role of `roles` and for which `fits` is true.
template <typename Fits>
std::optional<OutputAt> find_output(const program::Program& program, const program::Action& action,
                                    const Fits& fits) {
  const std::vector<Instruction>& list = program.list_of(action);
  for (size_t i = 0; i < list.size(); ++i) {
    // Results of the communication queue are not complete yet, and a loop rarely runs.
    if (list[i].queue != graph::Queue::kCompute || !program.is_expected(list[i])) continue;
    const graph::Node& node = program.node_of(list[i]);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == graph::kNone) continue;
      const graph::Value& value = program.graph.value(node.outputs[o]);
      if (is_float(value.dtype) && value.encoding.kind == graph::Encoding::Kind::kPlain &&
          fits(i, node, o, value))
        return OutputAt{i, node.inputs.size() + o, value.dtype, value.shape.elements()};
    }
  }
  return std::nullopt;
}

bool is_read_after(const program::Program& program, const std::vector<Instruction>& list, size_t index,
                   graph::ValueId value) {
  return std::any_of(list.begin() + static_cast<std::ptrdiff_t>(index) + 1, list.end(),
                     [&](const Instruction& later) {
                       const graph::Node& node = program.node_of(later);
                       const auto& inputs = node.inputs;
                       if (node.op == &ops::Statistics::def) return false;  // nothing depends on it
                       return std::find(inputs.begin(), inputs.end(), value) != inputs.end();
                     });
}

}  // namespace

void add_noise(const program::Executor& executor, double factor, uint64_t seed, int64_t step) {
  const graph::Graph& graph = executor.program(0).graph;
  std::vector<float> noise;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    if (value.shape.rank() < 2) continue;
    std::vector<float> weights = executor.read_floats(value.name);
    double squares = 0;
    int64_t count = 0;
    for_each_run(value, executor.ranks(), [&](int64_t, int64_t at, int64_t size) {
      for (int64_t i = at; i < at + size; ++i) squares += std::pow(weights[static_cast<size_t>(i)], 2);
      count += size;
    });
    if (count == 0) continue;
    const auto std = static_cast<float>(factor * std::sqrt(squares / static_cast<double>(count)));
    const std::string& name = parameter.part.of.empty() ? value.name : parameter.part.of;
    const RandomKey key{seed ^ static_cast<uint64_t>(step) << 32, static_cast<uint32_t>(hash64(name))};
    const int64_t first = parameter.part.first_row * (value.shape.elements() / value.shape[0]);
    for_each_run(value, executor.ranks(), [&](int64_t whole, int64_t at, int64_t size) {
      noise.resize(static_cast<size_t>(size));
      fill_normal(noise.data(), size, std, key, first + whole);
      for (int64_t i = 0; i < size; ++i)
        weights[static_cast<size_t>(at + i)] += noise[static_cast<size_t>(i)];
    });
    executor.write_floats(value.name, weights);
  }
}

void change_weight(const program::Executor& executor, const ElementFault& fault) {
  const graph::Graph& graph = executor.program(0).graph;
  const graph::Value& value = graph.value(choose_weight(graph, fault).value);
  const DType dtype = executor.set().at(value.name).dtype;
  const int64_t size = size_of(dtype), at = element_of(executor.read_floats(value.name), fault);
  std::byte element[sizeof(float)] = {};
  executor.download(value.name, element, size, at * size);
  change(element, dtype, fault);
  executor.upload(value.name, element, size, at * size);
}

std::optional<OutputAt> find_activation(const program::Program& program, const program::Action& action) {
  const std::vector<Instruction>& list = program.list_of(action);
  const auto found =
      find_output(program, action, [&](size_t i, const graph::Node& node, size_t o, const auto& value) {
        return value.role == graph::Role::kActivation && is_read_after(program, list, i, node.outputs[o]);
      });
  if (found) return found;
  // The last stage of a pipeline may have only values for backward.
  return find_output(program, action, [](size_t, const graph::Node&, size_t, const graph::Value& value) {
    return value.role == graph::Role::kActivation;
  });
}

std::optional<OutputAt> find_gradient(const program::Program& program, const program::Action& action) {
  return find_output(program, action, [](size_t, const graph::Node&, size_t, const graph::Value& value) {
    return value.role == graph::Role::kGradient || value.role == graph::Role::kTerms;
  });
}

void change_output(const program::Executor& executor, size_t program, const program::Action& action,
                   const OutputAt& at, const ElementFault& fault) {
  const Instruction& instruction = executor.program(program).list_of(action)[at.index];
  const int64_t bytes = size_of(at.dtype);
  const auto element = static_cast<int64_t>((fault.draw & 0xffffffff) % static_cast<uint64_t>(at.elements));
  const int64_t offset = fault.kind == ElementFault::Kind::kFlip ? element * bytes : 0;
  std::array<std::byte, 8> held{};
  executor.download_operand(program, action, instruction, at.operand, held.data(), bytes, offset);
  change(held.data(), at.dtype, fault);
  executor.upload_operand(program, action, instruction, at.operand, held.data(), bytes, offset);
}

std::optional<size_t> find_gather(const program::Program& program, const program::Action& action) {
  const std::vector<Instruction>& list = program.list_of(action);
  const auto found = std::find_if(list.begin(), list.end(), [&](const Instruction& one) {
    return graph::is_gather(program.graph, program.node_of(one));
  });
  if (found == list.end()) return std::nullopt;
  return static_cast<size_t>(found - list.begin());
}

void make_random(data::HostBatch& batch, int64_t vocab_size, uint64_t seed, int64_t step) {
  const std::vector<int32_t>& samples = batch[Column::kSamples];
  const RandomKey key{seed ^ static_cast<uint64_t>(step) << 32, kTokenStream};
  for (const Column column : {Column::kTokens, Column::kTargets, Column::kEncoderTokens}) {
    std::vector<int32_t>& ids = batch[column];
    const size_t places = samples.empty() ? 0 : ids.size() / samples.size();
    // A target is the token at the next place.
    const size_t ahead = column == Column::kTargets ? 1 : 0;
    const uint32_t row_of_encoder = column == Column::kEncoderTokens ? 1 : 0;
    for (size_t i = 0; i < samples.size() * places; ++i) {
      if (ids[i] < 0) continue;  // no loss here
      const auto sample = static_cast<uint64_t>(static_cast<uint32_t>(samples[i / places]));
      const auto bits = philox(key, sample << 32 | (i % places + ahead), row_of_encoder);
      ids[i] = static_cast<int32_t>(static_cast<uint64_t>(bits[0]) * static_cast<uint64_t>(vocab_size) >> 32);
    }
  }
}

}  // namespace strata::training
