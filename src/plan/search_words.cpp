// What stacks can run, and layouts in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "plan/search.h"

namespace strata::planning {

SearchSpace strata_space() {
  return {
      .schedules = {PipelineSchedule::k1F1B, PipelineSchedule::kZeroBubble, PipelineSchedule::kZeroBubbleV,
                    PipelineSchedule::kVHalf, PipelineSchedule::kDualPipeV},
      .shards_context = false,
      .folds_experts = true,
      .cuts_experts = true,
      .latent_context = false,
      .overlap_chunks = {1, 2, 4}};
}

SearchSpace nanotron_space() {
  return {.most_zero = 1,
          .recompute = {Recompute::kNone},
          .most_virtual = 1,
          .most_context = 1,
          .virtual_divides = true};
}

std::string gigabytes(double bytes) {
  return fmt::format("{:.1f} GB", bytes / 1e9);
}

std::string_view to_string(Binds binds) {
  switch (binds) {
    case Binds::kCompute:
      return "compute";
    case Binds::kMemory:
      return "memory";
    case Binds::kBandwidth:
      return "bandwidth";
    case Binds::kBubble:
      return "bubble";
    case Binds::kBatch:
      return "batch";
  }
  return "";
}

std::string layout_in_words(const Layout& layout) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, int64_t degree) {
    if (degree > 1) parts.push_back(fmt::format("{} {}", name, degree));
  };
  add("data", layout.data);
  add("tensor", layout.tensor);
  add("context", layout.context);
  add("pipeline", layout.pipeline);
  add("expert", layout.expert);
  add("expert tensor", layout.expert_tensor);
  if (layout.zero_stage > 0)
    parts.push_back(fmt::format("ZeRO {} over {}", layout.zero_stage, layout.shards));
  if (layout.pipeline > 1) {
    const bool interleaved = layout.virtual_stages > 1 && !is_folded(layout.schedule);
    parts.push_back(!interleaved ? std::string(to_string(layout.schedule))
                    : layout.schedule == PipelineSchedule::kZeroBubble
                        ? fmt::format("interleaved zb {}", layout.virtual_stages)
                        : fmt::format("interleaved {}", layout.virtual_stages));
  }
  parts.push_back(fmt::format("micro-batch {}", layout.micro_batch));
  if (layout.overlap_chunks > 1) parts.push_back(fmt::format("overlap in {}", layout.overlap_chunks));
  if (layout.recompute == Recompute::kSelective) parts.emplace_back("selective recompute");
  if (layout.recompute == Recompute::kFull) parts.emplace_back("full recompute");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace strata::planning
