#include <fmt/core.h>

#include "base/hash.h"
#include "base/json.h"
#include "program/explain.h"
#include "program/memory_report.h"
#include "program/waits.h"

namespace strata::program {
namespace {

using Json = nlohmann::ordered_json;
using graph::kNone;
using graph::ValueId;

std::string base_name(const Program& program, Base base) {
  if (is_in_pool(base)) return program.pools[pool_of(base)].name;
  return base == kInBatch ? "batch" : "arena";
}

Json operand_json(const Program& program, ValueId id) {
  if (id == kNone) return nullptr;
  const graph::Value& value = program.graph.value(id);
  const Place& place = program.places[static_cast<size_t>(id)];
  Json json{
      {"name", value.name},
      {"dtype", name_of(value.dtype)},
      {"shape", std::vector<int64_t>(value.shape.dims().begin(), value.shape.dims().end())},
      {"role", name_of(value.role)},
      {"encoding", value.encoding.kind == graph::Encoding::Kind::kPacked ? value.encoding.layout : "plain"},
      {"base", base_name(program, place.at.base)},
      {"offset", place.at.offset},
      {"bytes", place.bytes}};
  Json placements = Json::array();
  if (value.placements.decided()) {
    for (const graph::Axis axis : program.graph.mesh().shown_axes())
      placements.push_back(str(value.placements[axis]));
  }
  json["placements"] = std::move(placements);
  return json;
}

Json instruction_json(const Program& program, const SegmentAt& segment, bool accumulates, size_t index,
                      const Expected& expected) {
  const Instruction& instruction = program.segment(segment, accumulates)[index];
  const graph::Node& node = program.node_of(instruction);
  const auto waits = program.waits_of(instruction);
  Json json{{"id", instruction_id(segment, index, accumulates)},
            {"phase", std::string(1, letter_of(node.phase))},
            {"layer", node.layer == kNone ? Json() : Json(node.layer)},
            {"op", node.op->name},
            {"family", node.op->family},
            {"attributes", node.attrs.str()},
            {"queue", name_of(instruction.queue)},
            {"waits", std::vector<int32_t>(waits.begin(), waits.end())},
            {"signals", instruction.signals},
            {"flops", expected.flops},
            {"bytes", expected.bytes},
            {"cold_share", expected.cold_share},
            {"seconds", expected.seconds}};
  for (const auto& [key, ids] : {std::pair{"inputs", &node.inputs}, std::pair{"outputs", &node.outputs}}) {
    Json list = Json::array();
    for (const ValueId id : *ids) list.push_back(operand_json(program, id));
    json[key] = std::move(list);
  }
  const Operand& scratch = program.operands[instruction.first_operand + instruction.operand_count - 1];
  json["scratch_offset"] = scratch.base == Base::kAbsent ? Json() : Json(scratch.offset);
  return json;
}

Json total_json(const StepTotal& total) {
  Json families = Json::array();
  for (const FamilyTotal& family : total.families) {
    families.push_back({{"family", family.family},
                        {"instructions", family.instructions},
                        {"flops", family.flops},
                        {"bytes", family.bytes},
                        {"seconds", family.seconds}});
  }
  return {{"flops", total.flops}, {"bytes", total.bytes}, {"seconds", total.seconds}, {"families", families}};
}

Json program_json(const Program& program, const hardware::Machine& machine) {
  Json json{{"kind", name_of(program.request.kind)},
            {"sequences", program.request.sequences},
            {"sequence_length", program.request.sequence_length},
            {"micro_batches", program.request.micro_batches},
            {"recompute", name_of(program.recompute)},
            {"full_recompute_layers", program.full_recompute_layers},
            {"total", total_json(predict_step(program, machine))}};
  json["script"] = Json::array();
  for (const Action& action : program.script) json["script"].push_back(str(action));
  json["pools"] = Json::array();
  for (const Pool& pool : program.pools) {
    json["pools"].push_back({{"name", pool.name},
                             {"offset", pool.offset},
                             {"slot_bytes", pool.slot_bytes},
                             {"slots", pool.slots}});
  }
  for (const SegmentAt& segment : all_segments(program.chunks())) {
    for (const bool accumulates : {false, true}) {
      if (accumulates && program.segment(segment, true).empty()) continue;
      const std::vector<Expected> expected = predict(program, segment, accumulates, machine);
      Json list = Json::array();
      for (size_t i = 0; i < expected.size(); ++i)
        list.push_back(instruction_json(program, segment, accumulates, i, expected[i]));
      json["segments"][text_of(segment, accumulates)] = std::move(list);
    }
  }
  for (const Early& early : program.early) {
    const SegmentAt during{program.before_update()->segment, program.before_update()->chunk};
    json["early"].push_back(
        {{"id", instruction_id({Segment::kUpdate}, static_cast<size_t>(early.instruction))},
         {"before",
          instruction_id(during, static_cast<size_t>(early.before), program.before_update()->accumulates)}});
  }
  const Peak peak = workspace_peak(program);
  const InstructionAt at = instruction_at(program, static_cast<size_t>(peak.instruction));
  Json buffers = Json::array();
  for (const PeakBuffer& buffer : peak.buffers) {
    buffers.push_back({{"name", buffer.value == kNone ? "scratch" : program.graph.value(buffer.value).name},
                       {"offset", buffer.offset},
                       {"bytes", buffer.bytes}});
  }
  json["workspace"] = {{"bytes", peak.bytes},
                       {"peak_at", instruction_id(at.segment, at.index)},
                       {"alive_at_peak", peak.alive},
                       {"fragmentation", peak.bytes - peak.alive},
                       {"buffers_at_peak", buffers}};
  return json;
}

}  // namespace

std::string fingerprint(const ProgramSet& set) {
  Hasher hasher;
  const auto add = [&](const std::string& text) { hasher.update(text + "\n"); };
  add(fmt::format("{} {} {} {}", set.arena_bytes, set.persistent_bytes, set.batch_offset, set.cache_offset));
  for (const Persistent& entry : set.persistent)
    add(fmt::format("{} {} {}", entry.name, entry.offset, entry.bytes));
  for (const Program& program : set.programs) {
    for (const Action& action : program.script) add(str(action));
    for (const Pool& pool : program.pools) {
      add(fmt::format("{} {} {}", pool.name, pool.offset, pool.slot_bytes));
      for (const int32_t slot : pool.slot_of) add(fmt::format("{}", slot));
    }
    for (const Early& early : program.early)
      add(fmt::format("early {} {} {}", early.instruction, early.before, early.after));
    for (const Receive& receive : program.receives)
      add(fmt::format("receive {} {} {}", receive.before, receive.message, receive.micro_batch));
    for (const SegmentAt& segment : all_segments(program.chunks())) {
      for (const bool accumulates : {false, true}) {
        const auto& list = program.segment(segment, accumulates);
        add(fmt::format("segment of {}", list.size()));
        for (const Instruction& instruction : list) {
          add(graph::str(program.graph, program.node_of(instruction)));
          for (uint32_t o = 0; o < instruction.operand_count; ++o) {
            const Operand& operand = program.operands[instruction.first_operand + o];
            add(fmt::format("{} {}", static_cast<int>(operand.base), operand.offset));
          }
          for (const int32_t other : program.waits_of(instruction)) add(fmt::format("after {}", other));
        }
      }
    }
  }
  return to_hex(hasher.digest());
}

std::string explain_json(const ProgramSet& set, const hardware::Machine& machine) {
  Json json{{"fingerprint", fingerprint(set)},
            {"arena_bytes", set.arena_bytes},
            {"save_staging_bytes", save_staging_bytes(set)},
            {"cache_bytes", set.cache_bytes}};
  Json regions = Json::array();
  for (const Region& region : arena_regions(set)) {
    regions.push_back({{"name", region.name},
                       {"offset", region.offset},
                       {"bytes", region.bytes},
                       {"values", region.values}});
  }
  json["regions"] = std::move(regions);
  Json persistent = Json::array();
  for (const Persistent& entry : set.persistent) {
    persistent.push_back(
        {{"name", entry.name},
         {"role", name_of(entry.role)},
         {"dtype", name_of(entry.dtype)},
         {"shape", std::vector<int64_t>(entry.shape.dims().begin(), entry.shape.dims().end())},
         {"offset", entry.offset},
         {"bytes", entry.bytes}});
  }
  json["persistent"] = std::move(persistent);
  Json programs = Json::array();
  for (const Program& program : set.programs) programs.push_back(program_json(program, machine));
  json["programs"] = std::move(programs);
  return dump_json(json);
}

}  // namespace strata::program
