#include "program/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/clock.h"
#include "graph/zero.h"
#include "ops/quantize/quantize.h"
#include "program/memory_report.h"
#include "program/waits.h"

namespace strata::program {

using graph::kNone;
using graph::Node;
using graph::Value;
using graph::ValueId;

namespace {

constexpr size_t kColumns = 110;
constexpr size_t kMaxPeriod = 64;
constexpr size_t kPeakBuffers = 12;

std::string bytes_text(double bytes) {
  return human_bytes(bytes);
}

std::string shape_text(const Value& value) {
  std::string text(name_of(value.dtype));
  text += '[';
  for (int i = 0; i < value.shape.rank(); ++i) text += (i > 0 ? "," : "") + std::to_string(value.shape[i]);
  text += ']';
  // Its name ends with the layout of a packed value.
  if (value.encoding.kind == graph::Encoding::Kind::kPacked) text += " packed";
  return text;
}

std::string base_text(const Program& program, Base base) {
  if (base == kInBatch) return "batch+";
  return is_in_pool(base) ? program.pools[pool_of(base)].name + "+" : "";
}

std::string operand_text(const Program& program, ValueId id) {
  if (id == kNone) return "–";
  const Value& value = program.graph.value(id);
  const Place& place = program.places[static_cast<size_t>(id)];
  return fmt::format("{} {} @{}{}", value.name, shape_text(value), base_text(program, place.at.base),
                     place.at.offset);
}

// What makes two instructions the same for a reader: everything but names, layers and addresses.
std::string signature(const Program& program, const Instruction& instruction) {
  const Node& node = program.node_of(instruction);
  std::string text = fmt::format("{} {}", node.op->name, letter_of(node.phase));
  const bool once_a_step = node.phase == graph::Phase::kUpdate || node.phase == graph::Phase::kEncode;
  if (once_a_step) return text;
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) text += id == kNone ? " -" : " " + shape_text(program.graph.value(id));
  }
  return text;
}

struct Block {
  size_t begin, period, repeats;
};

// Cuts a segment into blocks that repeat. A block with a layer starts where a layer starts.
std::vector<Block> find_repeats(const Program& program, const std::vector<Instruction>& instructions) {
  const size_t n = instructions.size();
  std::vector<std::string> signatures;
  std::vector<int32_t> layers;
  for (const Instruction& instruction : instructions) {
    signatures.push_back(signature(program, instruction));
    layers.push_back(program.node_of(instruction).layer);
  }
  auto starts_layer = [&](size_t i) {
    return i >= n || layers[i] == kNone || i == 0 || layers[i] != layers[i - 1];
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < n;) {
    Block best{i, 1, 1};
    size_t saved = 0;
    for (size_t period = 1; period <= std::min(kMaxPeriod, n - i) && starts_layer(i); ++period) {
      if (!starts_layer(i + period)) continue;
      size_t repeats = 1;
      while (i + (repeats + 1) * period <= n &&
             std::equal(signatures.begin() + static_cast<std::ptrdiff_t>(i),
                        signatures.begin() + static_cast<std::ptrdiff_t>(i + period),
                        signatures.begin() + static_cast<std::ptrdiff_t>(i + repeats * period))) {
        ++repeats;
      }
      if ((repeats - 1) * period > saved) {
        saved = (repeats - 1) * period;
        best = {i, period, repeats};
      }
    }
    blocks.push_back(best);
    i += best.period * best.repeats;
  }
  return blocks;
}

// Breaks at " · " and "→", so that no line is wider than the terminal.
std::string wrapped(const std::vector<std::string>& items, const std::string& indent) {
  std::string text;
  std::string line = indent;
  for (const std::string& item : items) {
    const std::string piece = line == indent ? item : "  " + item;
    if (line != indent && line.size() + piece.size() > kColumns) {
      text += line + "\n";
      line = indent + item;
    } else {
      line += piece;
    }
  }
  return line == indent ? text : text + line + "\n";
}

std::string time_text(double seconds) {
  if (seconds <= 0) return "?";
  return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3);
}

std::string instruction_text(const Program& program, size_t index, const Instruction& instruction,
                             const Expected& expected) {
  const Node& node = program.node_of(instruction);
  std::string text =
      fmt::format("  {:>4} {} {:>3} {:<42} {:>12} {:>12} {:>5.0f} % {:>10}\n", index, letter_of(node.phase),
                  node.layer == kNone ? "" : std::to_string(node.layer), node.op->name,
                  expected.flops > 0 ? human_count(expected.flops) : "", bytes_text(expected.bytes),
                  100 * expected.cold_share, time_text(expected.seconds));
  constexpr size_t kShown = 8;  // a norm over all parameters has an operand each
  std::vector<std::string> items;
  auto list = [&](const std::vector<ValueId>& ids, const char* mark) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i == kShown) {
        items.push_back(fmt::format("and {} more", ids.size() - kShown));
        return;
      }
      items.push_back((i == 0 ? std::string(mark) : std::string()) + operand_text(program, ids[i]));
    }
  };
  list(node.inputs, "");
  list(node.outputs, "-> ");
  const Operand& scratch = program.operands[instruction.first_operand + instruction.operand_count - 1];
  if (scratch.base != Base::kAbsent) items.push_back(fmt::format("scratch @{}", scratch.offset));
  if (node.loop != kNone) {
    items.push_back(fmt::format("in a loop, while {} is not 0",
                                program.graph.value(program.graph.condition_of(node.loop)).name));
  }
  if (instruction.queue != graph::Queue::kCompute)
    items.push_back(fmt::format("queue {}", name_of(instruction.queue)));
  for (const int32_t other : program.waits_of(instruction))
    items.push_back(fmt::format("waits for {}", other));
  for (const Early& early : program.early) {
    if (node.phase == graph::Phase::kUpdate && early.instruction == static_cast<int32_t>(index)) {
      items.push_back(
          fmt::format("starts during {}, before {}", str(*program.before_update()),
                      instruction_id(program.before_update()->segment, static_cast<size_t>(early.before))));
    }
  }
  return text + wrapped(items, "             ");
}

// "script: F0 B0 F1 B1 … F15 B15 update encode".
std::string script_text(const Script& script) {
  constexpr size_t kShown = 24, kEnd = 6;
  std::string text = " script:";
  for (size_t i = 0; i < script.size(); ++i) {
    if (script.size() > kShown && i == kShown - kEnd) {
      text += " …";
      i = script.size() - kEnd;
    }
    text += " " + str(script[i]);
  }
  return text + "\n";
}

std::string segment_text(const Program& program, const SegmentAt& segment, const hardware::Machine& machine) {
  const auto& instructions = program.segment(segment);
  if (instructions.empty()) return "";
  const std::vector<Expected> expected = predict(program, segment, false, machine);
  Expected sum;
  for (const Expected& one : expected) {
    sum.flops += one.flops;
    sum.bytes += one.bytes;
    sum.seconds += one.seconds;
  }
  std::string text =
      fmt::format("\n {}: {} instructions, {} FLOP, {}, {}\n", text_of(segment), instructions.size(),
                  human_count(sum.flops), bytes_text(sum.bytes), time_text(sum.seconds));
  text += fmt::format("  {:>4} {} {:>3} {:<42} {:>12} {:>12} {:>7} {:>10}\n", "no", "p", "lay", "op", "FLOP",
                      "bytes", "memory", "expected");
  for (const Block& block : find_repeats(program, instructions)) {
    for (size_t i = block.begin; i < block.begin + block.period; ++i)
      text += instruction_text(program, i, instructions[i], expected[i]);
    if (block.repeats == 1) continue;
    double seconds = 0;
    const size_t end = block.begin + block.period * block.repeats;
    for (size_t i = block.begin; i < end; ++i) seconds += expected[i].seconds;
    const int32_t first = program.node_of(instructions[block.begin]).layer;
    const int32_t last = program.node_of(instructions[end - 1]).layer;
    text += fmt::format("       × {}{}: up to {}, {} in all\n", block.repeats,
                        first == kNone || first == last ? "" : fmt::format(" (layers {} to {})", first, last),
                        instruction_id(segment, end - 1), time_text(seconds));
  }
  return text;
}

// Of delayed scaling: its histories among the states, and when it quantises. Empty without histories.
std::string histories_text(const ProgramSet& set) {
  int64_t inputs = 0, weights = 0, gradients = 0, bytes = 0;
  for (const Persistent& entry : set.persistent) {
    if (entry.role != graph::Role::kState || !entry.name.starts_with("history_")) continue;
    bytes += entry.bytes;
    ++(entry.name.starts_with("history_input.")    ? inputs
       : entry.name.starts_with("history_weight.") ? weights
                                                   : gradients);
  }
  if (bytes == 0) return {};
  return fmt::format(
      "  the state includes histories of {} steps for {} inputs, {} weights and {} gradients: {}\n"
      "  weights are quantised once after an update, the others in every micro-batch, all with scales of earlier steps\n",
      set.options.precision->history, inputs, weights, gradients, bytes_text(static_cast<double>(bytes)));
}

}  // namespace

std::string instruction_id(const SegmentAt& at, size_t index, bool accumulates) {
  return fmt::format("{}.{}", text_of(at, accumulates), index);
}

std::string text_of(const SegmentAt& at, bool accumulates) {
  const std::string name = name_of(at.segment, accumulates);
  return at.chunk == 0 ? name : fmt::format("{}/{}", name, at.chunk);
}

char letter_of(graph::Phase phase) {
  constexpr std::string_view kLetters = "SFRIWUE";
  return kLetters[static_cast<size_t>(phase)];
}

std::string explain_program(const Program& program, const hardware::Machine& machine) {
  const Request& request = program.request;
  std::string text = fmt::format("\nProgram {}: {} × {} tokens", name_of(request.kind), request.sequences,
                                 request.sequence_length);
  if (request.micro_batches > 1) text += fmt::format(", {} micro-batches a step", request.micro_batches);
  if (request.kind == Kind::kTrain) {
    text += fmt::format(", recompute {}", name_of(program.recompute));
    if (program.recompute == Recompute::kFull)
      text += fmt::format(" in {} layers", program.full_recompute_layers);
  }
  text += "\n";
  text += script_text(program.script);
  for (const Pool& pool : program.pools) {
    text += fmt::format("  pool {}: {} buffers of {}, from byte {}\n", pool.name, pool.slots,
                        bytes_text(static_cast<double>(pool.slot_bytes)), pool.offset);
  }
  for (const SegmentAt& segment : all_segments(program.chunks())) {
    text += segment_text(program, segment, machine);
    const size_t later = program.segment(segment, true).size();
    if (later > 0) {
      text += fmt::format("\n {}: the {} instructions of {}; what accumulates is added to, not overwritten\n",
                          text_of(segment, true), later, text_of(segment));
    }
  }
  return text;
}

std::string explain_gathers(const ProgramSet& set) {
  const graph::Graph& graph = set.programs.front().graph;
  // By type: the parameters. A weight that `quantize` reads whole is one whose shards end inside blocks.
  std::map<DType, std::set<ValueId>> sent;
  std::set<ValueId> quantized_whole;
  for (const Node& node : graph.nodes()) {
    if (node.op == &ops::Quantize::def) quantized_whole.insert(node.inputs.front());
    for (size_t i = 0; graph::is_gather(graph, node) && i < node.outputs.size(); ++i)
      sent[graph.value(node.outputs[i]).dtype].insert(graph.value(node.outputs[i]).sharding.whole_of);
  }
  if (sent.empty()) return {};
  std::string text = "\nGathers: ranks put together";
  const char* separator = " ";
  for (const auto& [dtype, parameters] : sent) {
    text += fmt::format("{}{} weights in {}", separator, parameters.size(), strata::name_of(dtype));
    separator = ", ";
  }
  text += "\n";
  for (const Node& node : graph.nodes()) {
    for (const ValueId output : node.outputs) {
      if (!graph::is_gather(graph, node) || !quantized_whole.contains(output)) continue;
      const Value& value = graph.value(output);
      text += fmt::format("  {} in {}: its shards end inside the recipe's blocks\n",
                          graph.value(value.sharding.whole_of).name, strata::name_of(value.dtype));
      quantized_whole.erase(output);
    }
  }
  return text;
}

std::string explain_memory(const ProgramSet& set) {
  std::string text = fmt::format("\nMemory: the arena has {} bytes ({})\n", set.arena_bytes,
                                 bytes_text(static_cast<double>(set.arena_bytes)));
  text += fmt::format("  {:<12} {:>16} {:>16} {:>10} {:>8}\n", "region", "from byte", "bytes", "", "values");
  for (const Region& region : arena_regions(set)) {
    text += fmt::format("  {:<12} {:>16} {:>16} {:>10} {:>8}\n", region.name, region.offset, region.bytes,
                        bytes_text(static_cast<double>(region.bytes)),
                        region.values > 0 ? std::to_string(region.values) : "");
  }
  text += histories_text(set);
  if (set.cache_bytes > 0) {
    text += fmt::format("  the workspace begins with {} of {} while text is generated\n",
                        bytes_text(static_cast<double>(set.cache_bytes)),
                        set.options.model.has_states() ? "keys, values and states" : "keys and values");
  }
  if (const int64_t staging = save_staging_bytes(set); staging > 0) {
    text += fmt::format(
        "  besides it, from the first save on: {} for data that a save has not read when an update starts\n",
        bytes_text(static_cast<double>(staging)));
  }
  const Program& program = set.programs[largest_program(set)];
  if (program.pool_bytes() > 0) {
    text += fmt::format("  the workspace begins with {} of pools while micro-batches overlap\n",
                        bytes_text(static_cast<double>(program.pool_bytes())));
  }
  const Peak peak = workspace_peak(program);
  if (program.micro_batch_instructions() == 0) return text;
  const auto id_of = [&](int32_t place) {
    const InstructionAt at = instruction_at(program, static_cast<size_t>(place));
    return instruction_id(at.segment, at.index);
  };
  const InstructionAt peak_at = instruction_at(program, static_cast<size_t>(peak.instruction));
  const Node& at = program.node_of(program.segment(peak_at.segment)[peak_at.index]);
  text += fmt::format("\nPeak: {} at {} of {} ({} {}{})\n", bytes_text(static_cast<double>(peak.alive)),
                      id_of(peak.instruction), name_of(program.request.kind), letter_of(at.phase),
                      at.op->name, at.layer == kNone ? "" : fmt::format(", layer {}", at.layer));
  text += fmt::format("  {} bytes live there; {} of the workspace's {} are lost between buffers\n",
                      peak.alive, peak.bytes - peak.alive, peak.bytes);
  int64_t rest = 0;
  for (size_t i = 0; i < peak.buffers.size(); ++i) {
    const PeakBuffer& buffer = peak.buffers[i];
    if (i >= kPeakBuffers) {
      rest += buffer.bytes;
      continue;
    }
    const bool scratch = buffer.value == kNone;
    const Place place = scratch ? Place{} : program.places[static_cast<size_t>(buffer.value)];
    text += fmt::format("  {:>12}  @{:<12} {:<40} {}\n", bytes_text(static_cast<double>(buffer.bytes)),
                        buffer.offset,
                        scratch ? "scratch of the instruction"
                                : fmt::format("{} {}", program.graph.value(buffer.value).name,
                                              shape_text(program.graph.value(buffer.value))),
                        scratch ? "" : fmt::format("lives {} to {}", id_of(place.first), id_of(place.last)));
  }
  if (rest > 0) {
    text += fmt::format("  {:>12}  in {} smaller ones\n", bytes_text(static_cast<double>(rest)),
                        peak.buffers.size() - kPeakBuffers);
  }
  return text;
}

std::string explain_totals(const StepTotal& total) {
  std::string text = fmt::format("\n  {:<16} {:>6} {:>12} {:>12} {:>12} {:>8} {:>12}\n", "kernel family",
                                 "calls", "FLOP", "bytes", "expected", "share", "FLOP/s");
  auto row = [&](const std::string& name, int64_t calls, double flops, double bytes, double seconds) {
    text += fmt::format("  {:<16} {:>6} {:>12} {:>12} {:>12} {:>6.1f} % {:>12}\n", name, calls,
                        human_count(flops), bytes_text(bytes), time_text(seconds),
                        total.seconds > 0 ? 100 * seconds / total.seconds : 0,
                        seconds > 0 ? human_count(flops / seconds) : "?");
  };
  int64_t calls = 0;
  for (const FamilyTotal& family : total.families) {
    row(family.family, family.instructions, family.flops, family.bytes, family.seconds);
    calls += family.instructions;
  }
  row("a step", calls, total.flops, total.bytes, total.seconds);
  return text;
}

}  // namespace strata::program
