#include "cli/causality_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"

namespace strata::cli {
namespace {

using evaluation::Leak;
using Json = nlohmann::ordered_json;

// "context 2, tensor 2"; of one rank "one rank".
std::string layout_of(const graph::Mesh& mesh) {
  std::string text;
  for (const graph::Axis axis : graph::kAllAxes) {
    if (mesh.size(axis) > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(axis), mesh.size(axis));
  }
  return text.empty() ? "one rank" : text;
}

std::string text_of_leak(const Leak& leak) {
  const std::string where =
      leak.layer == graph::kNone ? "outside the layers" : fmt::format("of layer {}", leak.layer);
  if (!leak.in_loss) {
    return fmt::format(
        "{} {}: row {} of sequence {} of micro-batch {} changes, by up to {:.3g} ({}), although only tokens "
        "{} to {} of its sequence were changed",
        leak.op, where, leak.row, leak.sequence, leak.micro_batch, leak.largest, leak.value,
        leak.changed_from, leak.changed_to - 1);
  }
  return fmt::format(
      "{} {}: the sum of the losses changes, by up to {:.3g} ({}), although it includes no changed row",
      leak.op, where, leak.largest, leak.value);
}

}  // namespace

bool CausalityReport::causal() const {
  return std::all_of(answers.begin(), answers.end(),
                     [](const CausalityAnswer& answer) { return answer.found.causal(); });
}

std::vector<std::string> CausalityReport::not_covered() const {
  std::vector<std::string> list;
  if (!left_out.empty()) list.push_back(left_out);
  list.emplace_back("prefill and decoding of strata generate, which have no later tokens to read");
  std::vector<std::string> unseen;
  for (const CausalityAnswer& answer : answers) {
    for (const std::string& op : answer.found.unseen) {
      if (std::find(unseen.begin(), unseen.end(), op) == unseen.end()) unseen.push_back(op);
    }
  }
  std::string names;
  for (const std::string& op : unseen) names += (names.empty() ? "" : ", ") + op;
  if (!names.empty())
    list.push_back(
        names + " by themselves, whose results have no row per token: the ops that read them are compared");
  if (!documents)
    list.emplace_back("documents of one sequence against each other, which data.pack = \"stream\" lets see");
  if (mesh.ranks() == 1) list.emplace_back("layouts of several ranks: [parallel] and --ranks N");
  return list;
}

std::string text_of(const CausalityReport& report) {
  std::string text = report.causal()
                         ? "causal: no token affects earlier ones, or another document or sequence\n\n"
                         : "NOT CAUSAL: tokens affect others that must not see them\n\n";
  const auto line = [&](const std::string& name, const std::string& what) {
    text += fmt::format("{:<10} {}\n", name, what);
  };
  for (const CausalityAnswer& answer : report.answers) {
    const program::Request& request = answer.request;
    line(
        answer.mode(),
        fmt::format(
            "changed from {} of {} positions on in {} sequences per micro-batch, {} micro-batch{} per step{}; "
            "{} activations row by row, and the loss",
            answer.found.positions, request.sequence_length, request.sequences * answer.batch_parts,
            request.micro_batches, request.micro_batches == 1 ? "" : "es",
            report.documents ? ", three documents in a sequence" : "", answer.found.values));
    for (const Leak& leak : answer.found.leaks) line("", "leaks: " + text_of_leak(leak));
  }
  line("layout", fmt::format("{}; computed in {}, compared bit for bit", layout_of(report.mesh),
                             name_of(report.computed)));
  line("weights", report.weights);
  for (const std::string& one : report.not_covered()) line("not tried", one);
  if (!report.causal()) {
    text +=
        "\nThe named op is the first that lets rows see others that they must not; the ops after it pass that "
        "on.\nCheck its mask, its inputs (positions, kv_begin, kv_end), and anything it computes over all rows.\n"
        "A model that leaks learns to copy: its loss falls too fast, and it generates nothing useful.\n";
  }
  return text;
}

std::string json_of(const CausalityReport& report) {
  Json json{{"causal", report.causal()}, {"leaks", Json::array()}, {"modes", Json::array()}};
  for (const CausalityAnswer& answer : report.answers) {
    for (const Leak& leak : answer.found.leaks) {
      Json one{{"op", leak.op}, {"layer", nullptr}, {"mode", answer.mode()}, {"largest", leak.largest}};
      if (leak.layer != graph::kNone) one["layer"] = leak.layer;
      one["value"] = leak.value;
      if (!leak.in_loss) {
        one["micro_batch"] = leak.micro_batch;
        one["sequence"] = leak.sequence;
        one["row"] = leak.row;
        one["changed"] = {leak.changed_from, leak.changed_to};
      }
      json["leaks"].push_back(std::move(one));
    }
    json["modes"].push_back({{"mode", answer.mode()},
                             {"positions", answer.found.positions},
                             {"sequence_length", answer.request.sequence_length},
                             {"sequences", answer.request.sequences * answer.batch_parts},
                             {"micro_batches", answer.request.micro_batches},
                             {"activations", answer.found.values}});
  }
  Json layout = Json::object();
  for (const graph::Axis axis : report.mesh.shown_axes())
    layout[std::string(name_of(axis))] = report.mesh.size(axis);
  json["layout"] = std::move(layout);
  json["not_covered"] = report.not_covered();
  return dump_json(json);
}

}  // namespace strata::cli
