#include "library/rank_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/json.h"
#include "config/resolve.h"
#include "program/pipeline.h"
#include "program/traffic.h"

namespace strata::library {

using graph::Axis;

namespace {

// Memory of each of several ranks, by purpose.
std::vector<std::pair<std::string, int64_t>> held_by_rank(const program::ProgramSet& set) {
  const std::pair<graph::Role, const char*> kinds[] = {{graph::Role::kParameter, "weights"},
                                                       {graph::Role::kEncoded, "weights for kernels"},
                                                       {graph::Role::kGradient, "gradients"},
                                                       {graph::Role::kState, "optimizer states"}};
  std::vector<std::pair<std::string, int64_t>> out;
  for (const auto& [role, name] : kinds) {
    int64_t bytes = 0;
    for (const program::Persistent& entry : set.persistent) bytes += entry.role == role ? entry.bytes : 0;
    out.emplace_back(name, bytes);
  }
  return out;
}

// The stages of a rank's pipeline: "2, 5".
std::string stages_text(const program::Pipeline& pipeline) {
  return fmt::format("{}", fmt::join(pipeline.stages(), ", "));
}

// Layers and ends of a rank: "embedding, layers 0 to 3".
std::string parts_text(const program::Pipeline& pipeline) {
  std::string text;
  for (const int32_t stage : pipeline.stages()) {
    const parallel::StageParts& parts = pipeline.layout[static_cast<size_t>(stage)];
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (parts.has_embedding) add("embedding");
    if (parts.layers == 1) add(fmt::format("layer {}", parts.first_layer));
    if (parts.layers > 1)
      add(fmt::format("layers {} to {}", parts.first_layer, parts.first_layer + parts.layers - 1));
    if (parts.prediction_layers > 0) {
      const int32_t more = parts.prediction_layers;
      add(fmt::format("{} layer{} for further tokens", more, more == 1 ? "" : "s"));
    }
    if (parts.has_head) add("head");
  }
  return text.empty() ? "nothing" : text;
}

// Values saved for all micro-batches in flight, and messages between ranks.
int64_t slot_bytes(const program::ProgramSet& set) {
  return set.programs[config::kTrainProgram].pool_bytes();
}

}  // namespace

nlohmann::ordered_json ranks_json(const program::ProgramSet& set, int64_t rank) {
  nlohmann::ordered_json json;
  json["count"] = set.options.mesh.ranks();
  json["rank"] = rank;
  const graph::Mesh& mesh = set.options.mesh;
  const graph::Coordinates at = mesh.coordinates(rank);
  for (const Axis axis : mesh.shown_axes()) json["coordinates"][std::string(name_of(axis))] = at[axis];
  if (const auto& pipeline = set.options.pipeline; pipeline != nullptr) {
    json["stages"] = pipeline->stages();
    json["parts"] = parts_text(*pipeline);
  }
  json["zero"] = set.options.zero;
  for (const Axis axis : mesh.shown_axes()) json["mesh"][std::string(name_of(axis))] = mesh.size(axis);
  for (const auto& [name, bytes] : held_by_rank(set)) json["holds"][name] = bytes;
  for (const auto& one : program::traffic_of(set.programs[config::kTrainProgram], set.options))
    json["sends"].push_back({{"axis", one.axis}, {"calls", one.calls}, {"bytes", one.sent_bytes}});
  return json;
}

nlohmann::ordered_json stages_json(const std::vector<std::shared_ptr<const program::ProgramSet>>& stages) {
  const int64_t ranks = stages.front()->options.mesh.ranks();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t place = 0; place < stages.size(); ++place) {
    const program::ProgramSet& set = *stages[place];
    all.push_back(ranks_json(set, static_cast<int64_t>(place) * ranks / std::ssize(stages)));
    all.back()["arena_bytes"] = set.arena_bytes;
    all.back()["slot_bytes"] = slot_bytes(set);
  }
  return {{"ranks", ranks}, {"stages", all}};
}

std::string stages_table(const std::vector<std::shared_ptr<const program::ProgramSet>>& stages) {
  const int64_t ranks = stages.front()->options.mesh.ranks() / std::ssize(stages);
  std::string table = fmt::format("{:<17} {:<8} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "ranks", "stages",
                                  "weights", "gradients", "states", "pools", "arena", "parts");
  for (size_t place = 0; place < stages.size(); ++place) {
    const program::ProgramSet& set = *stages[place];
    const int64_t from = static_cast<int64_t>(place) * ranks;
    std::map<std::string, int64_t> held;
    for (const auto& [name, bytes] : held_by_rank(set)) held[name] = bytes;
    const auto text = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
    const auto& pipeline = set.options.pipeline;
    table += fmt::format("{:<17} {:<8} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n",
                         ranks == 1 ? std::to_string(from) : fmt::format("{} to {}", from, from + ranks - 1),
                         pipeline ? stages_text(*pipeline) : "0", text(held["weights"]),
                         text(held["gradients"]), text(held["optimizer states"]), text(slot_bytes(set)),
                         text(set.arena_bytes), pipeline ? parts_text(*pipeline) : "the whole model");
  }
  return table;
}

std::string ranks_text(const program::ProgramSet& set, int64_t rank) {
  const graph::Mesh& mesh = set.options.mesh;
  if (mesh.ranks() == 1) return {};
  std::string out;
  if (const auto& pipeline = set.options.pipeline; pipeline != nullptr) {
    out += fmt::format("\nrank {}: stage {} of {}, {} schedule: {}\n", rank, stages_text(*pipeline),
                       pipeline->schedule.stages, pipeline->schedule.name, parts_text(*pipeline));
  }
  const int64_t tensor = mesh.size(Axis::kTensor);
  out += fmt::format(
      "\n{} ranks, ZeRO stage {}; {}\n", mesh.ranks(), set.options.zero,
      tensor == 1
          ? "consecutive ranks in a row are a shard group"
          : "ranks joined by + are a tensor group; in a row, those at the same place in each are a shard group");
  constexpr int64_t kMostRows = 8, kMostInRow = 16;
  const int64_t rows = mesh.size(Axis::kPipeline) * mesh.size(Axis::kReplicate), in_row = mesh.ranks() / rows;
  for (int64_t row = 0; row < std::min(rows, kMostRows); ++row) {
    std::string line = mesh.size(Axis::kPipeline) > 1
                           ? fmt::format("  pipeline {}, replica {:<4}", row / mesh.size(Axis::kReplicate),
                                         row % mesh.size(Axis::kReplicate))
                           : fmt::format("  replica {:<4}", row);
    for (int64_t i = 0; i < std::min(in_row, kMostInRow); ++i)
      line += fmt::format("{}{:>{}}", i % tensor == 0 ? " " : "+", row * in_row + i, tensor == 1 ? 5 : 0);
    out += fmt::format("{}{}\n", line, in_row > kMostInRow ? " …" : "");
  }
  if (rows > kMostRows) out += fmt::format("  …\n");
  out += fmt::format("{} holds", mesh.size(Axis::kPipeline) > 1 ? fmt::format("rank {}", rank) : "each rank");
  for (const auto& [name, bytes] : held_by_rank(set))
    out += fmt::format("  {} {}", human_bytes(static_cast<double>(bytes)), name);
  out += fmt::format("\n");
  for (const auto& one : program::traffic_of(set.programs[config::kTrainProgram], set.options)) {
    out += fmt::format("{} sends {} a step on axis {}, in {} {}\n",
                       mesh.size(Axis::kPipeline) > 1 ? fmt::format("rank {}", rank) : "each rank",
                       human_bytes(static_cast<double>(one.sent_bytes)), one.axis, one.calls,
                       one.axis == name_of(Axis::kPipeline) ? "messages and collectives" : "collectives");
  }
  return out;
}

}  // namespace strata::library
