#include "cli/explain_ranks.h"

#include <algorithm>

#include "base/clock.h"
#include "cli/output.h"
#include "config/resolve.h"
#include "program/traffic.h"

namespace strata::cli {
namespace {

// What each of several ranks holds, by what it is for.
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

}  // namespace

nlohmann::ordered_json ranks_json(const program::ProgramSet& set) {
  nlohmann::ordered_json json;
  json["count"] = set.options.mesh.ranks();
  json["zero"] = set.options.zero;
  for (const graph::MeshAxis& axis : set.options.mesh.axes) json["mesh"][axis.name] = axis.size;
  for (const auto& [name, bytes] : held_by_rank(set)) json["holds"][name] = bytes;
  for (const auto& one : program::traffic_of(set.programs[config::kTrainProgram], set.options))
    json["sends"].push_back({{"axis", one.axis}, {"calls", one.calls}, {"bytes", one.sent_bytes}});
  return json;
}

void print_ranks(const program::ProgramSet& set) {
  const graph::Mesh& mesh = set.options.mesh;
  if (mesh.ranks() == 1) return;
  const int64_t tensor = mesh.size("tensor");
  print_out("\n{} ranks, ZeRO stage {}; {}\n", mesh.ranks(), set.options.zero,
            tensor == 1
                ? "neighbours in a row are a shard group"
                : "those joined by + are a tensor group, and each place of them in a row a shard group");
  constexpr int64_t kMostRows = 8, kMostInRow = 16;
  const int64_t rows = mesh.size("replicate"), in_row = mesh.ranks() / rows;
  for (int64_t row = 0; row < std::min(rows, kMostRows); ++row) {
    std::string text = fmt::format("  replica {:<4}", row);
    for (int64_t i = 0; i < std::min(in_row, kMostInRow); ++i)
      text += fmt::format("{}{:>{}}", i % tensor == 0 ? " " : "+", row * in_row + i, tensor == 1 ? 5 : 0);
    print_out("{}{}\n", text, in_row > kMostInRow ? " …" : "");
  }
  if (rows > kMostRows) print_out("  …\n");
  print_out("each rank holds");
  for (const auto& [name, bytes] : held_by_rank(set))
    print_out("  {} {}", human_bytes(static_cast<double>(bytes)), name);
  print_out("\n");
  for (const auto& one : program::traffic_of(set.programs[config::kTrainProgram], set.options)) {
    print_out("each rank sends {} a step on axis {}, in {} collectives\n",
              human_bytes(static_cast<double>(one.sent_bytes)), one.axis, one.calls);
  }
}

}  // namespace strata::cli
