#include "plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strata::planning {

std::string_view to_string(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::kGPipe:
      return "gpipe";
    case PipelineSchedule::k1F1B:
      return "1f1b";
    case PipelineSchedule::kZeroBubble:
      return "zb-h1";
    case PipelineSchedule::kZeroBubbleV:
      return "zbv";
    case PipelineSchedule::kVHalf:
      return "v-half";
    case PipelineSchedule::kVMin:
      return "v-min";
    case PipelineSchedule::kDualPipeV:
      return "dualpipev";
  }
  return "";
}

bool is_folded(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::kZeroBubbleV || schedule == PipelineSchedule::kVHalf ||
         schedule == PipelineSchedule::kVMin || schedule == PipelineSchedule::kDualPipeV;
}

std::vector<std::string> layout_violations(const ModelShape& shape, const Layout& layout, int64_t sequence) {
  std::vector<std::string> out;
  const auto check = [&](bool holds, std::string message) {
    if (!holds) out.push_back(std::move(message));
  };
  const int64_t t = layout.tensor;
  check(shape.heads % t == 0, fmt::format("tensor degree {} does not divide {} heads", t, shape.heads));
  check(shape.kv_heads % t == 0 || t % shape.kv_heads == 0,
        fmt::format("tensor degree {} and {} key-value heads do not divide each other", t, shape.kv_heads));
  check(shape.ffn % t == 0, fmt::format("tensor degree {} does not divide ffn {}", t, shape.ffn));
  const int64_t stages = layout.pipeline * layout.virtual_stages;
  check(stages <= shape.layers, fmt::format("{} stages are more than {} layers", stages, shape.layers));
  const double rounds = layout.micro_batches / static_cast<double>(layout.pipeline);
  check(layout.virtual_stages == 1 || layout.pipeline == 1 || rounds == std::floor(rounds),
        fmt::format("interleaving needs micro-batches in multiples of {} stages, found {}", layout.pipeline,
                    layout.micro_batches));
  const int64_t parts = layout.context > 1 ? 2 * layout.context * t : 1;
  check(sequence % parts == 0, fmt::format("2 x context {} x tensor {} does not divide the sequence {}",
                                           layout.context, t, sequence));
  if (shape.has_experts()) {
    check(shape.moe.experts % layout.expert == 0,
          fmt::format("expert degree {} does not divide {} experts", layout.expert, shape.moe.experts));
    const int64_t ranks = layout.replicas() * t;
    check(ranks % (layout.expert * layout.expert_tensor) == 0,
          fmt::format("expert degree {} x expert tensor degree {} does not divide the {} ranks of a stage",
                      layout.expert, layout.expert_tensor, ranks));
  }
  return out;
}

double bubble_units(const Layout& layout) {
  const auto idle = static_cast<double>(layout.pipeline - 1);
  switch (layout.schedule) {
    case PipelineSchedule::kGPipe:
      return idle;
    case PipelineSchedule::k1F1B:
      return idle / static_cast<double>(layout.virtual_stages);
    case PipelineSchedule::kZeroBubble:
      return idle / 3 / static_cast<double>(layout.virtual_stages);
    case PipelineSchedule::kDualPipeV:
      return idle / 3;
    case PipelineSchedule::kZeroBubbleV:
      return idle / 6;
    case PipelineSchedule::kVHalf:
      return idle * 13 / 21;
    case PipelineSchedule::kVMin:
      return idle * 13.5 / 21;
  }
  return idle;
}

double stages_in_flight(const Layout& layout) {
  const auto p = static_cast<double>(layout.pipeline);
  const auto v = static_cast<double>(layout.virtual_stages);
  double held = p;
  switch (layout.schedule) {
    case PipelineSchedule::kGPipe:
      held = layout.micro_batches;
      break;
    case PipelineSchedule::k1F1B:
      held = v > 1 ? p + (p - 1) / v : p;
      break;
    case PipelineSchedule::kZeroBubble:
    case PipelineSchedule::kZeroBubbleV:
      break;
    case PipelineSchedule::kVHalf:
      held = p / 2 + 1;
      break;
    case PipelineSchedule::kVMin:
      held = p / 3 + 1;
      break;
    case PipelineSchedule::kDualPipeV:
      held = p + 0.5;
      break;
  }
  return layout.pipeline > 1 ? std::min(held, layout.micro_batches) : 1;
}

}  // namespace strata::planning
