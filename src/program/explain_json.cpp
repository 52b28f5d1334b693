#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "program/explain.h"
#include "program/memory_report.h"

namespace strata::program {
namespace {

using Json = nlohmann::ordered_json;
using graph::kNone;
using graph::ValueId;

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
      {"base", place.at.base == Base::kBatch ? "batch" : "arena"},
      {"offset", place.at.offset},
      {"bytes", place.bytes}};
  Json placements = Json::array();
  for (const graph::Placement& placement : value.placements) placements.push_back(str(placement));
  json["placements"] = std::move(placements);
  return json;
}

Json instruction_json(const Program& program, Segment segment, size_t index, const Expected& expected) {
  const Instruction& instruction = program.segment(segment)[index];
  const graph::Node& node = program.graph.nodes()[static_cast<size_t>(instruction.node)];
  Json json{{"id", instruction_id(segment, index)},
            {"phase", std::string(1, letter_of(node.phase))},
            {"layer", node.layer == kNone ? Json() : Json(node.layer)},
            {"op", node.op->name},
            {"family", node.op->family},
            {"attributes", node.attrs.str()},
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

Json program_json(const Program& program, const hardware::DeviceSpec& device) {
  Json json{{"kind", name_of(program.request.kind)},
            {"sequences", program.request.sequences},
            {"sequence_length", program.request.sequence_length},
            {"micro_batches", program.request.micro_batches},
            {"recompute", name_of(program.recompute)},
            {"full_recompute_layers", program.full_recompute_layers},
            {"total", total_json(predict_step(program, device))}};
  for (int s = 0; s < kSegments; ++s) {
    const auto segment = static_cast<Segment>(s);
    const std::vector<Expected> expected = predict(program, segment, device);
    Json list = Json::array();
    for (size_t i = 0; i < expected.size(); ++i)
      list.push_back(instruction_json(program, segment, i, expected[i]));
    json["segments"][std::string(name_of(segment))] = std::move(list);
  }
  const Peak peak = workspace_peak(program);
  Json buffers = Json::array();
  for (const PeakBuffer& buffer : peak.buffers) {
    buffers.push_back({{"name", buffer.value == kNone ? "scratch" : program.graph.value(buffer.value).name},
                       {"offset", buffer.offset},
                       {"bytes", buffer.bytes}});
  }
  json["workspace"] = {{"bytes", peak.bytes},
                       {"peak_at", instruction_id(Segment::kFirst, static_cast<size_t>(peak.instruction))},
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
    for (const auto& segment : program.segments) {
      add(fmt::format("segment of {}", segment.size()));
      for (const Instruction& instruction : segment) {
        add(graph::str(program.graph, program.graph.nodes()[static_cast<size_t>(instruction.node)]));
        for (uint32_t o = 0; o < instruction.operand_count; ++o) {
          const Operand& operand = program.operands[instruction.first_operand + o];
          add(fmt::format("{} {}", static_cast<int>(operand.base), operand.offset));
        }
      }
    }
  }
  return to_hex(hasher.digest());
}

std::string explain_json(const ProgramSet& set, const hardware::DeviceSpec& device) {
  Json json{
      {"fingerprint", fingerprint(set)}, {"arena_bytes", set.arena_bytes}, {"cache_bytes", set.cache_bytes}};
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
  for (const Program& program : set.programs) programs.push_back(program_json(program, device));
  json["programs"] = std::move(programs);
  return json.dump();
}

}  // namespace strata::program
