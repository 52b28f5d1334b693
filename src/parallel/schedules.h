// Generators of the published pipeline schedules, from the numbers of ranks and micro-batches.
//
//   gpipe           Huang et al., GPipe (2019): all forward, then all backward
//   1f1b            Narayanan et al., PipeDream-Flush (2021): backward as soon as possible
//   interleaved     Narayanan et al., Megatron-LM (SC 2021): several stages per rank, micro-batches in groups
//   zb_h1           Qi et al., Zero Bubble (2024): 1f1b's memory, W fills the time that ranks would wait
//   interleaved_zb  zb_h1's rule for W on interleaved stages
//   zbv             Qi et al., Zero Bubble (2024): two stages per rank, folded into a V
//   v_half, v_min   Qi et al., Controllable Memory (2024): a pattern with period six, W in the gaps
//   dualpipev       DeepSeek's DualPipe cut in half: zbv's stages, forward and backward in overlapped pairs
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parallel/schedule.h"
#include "parallel/words.h"

namespace strata::parallel {

struct ScheduleRequest {
  std::string name = "1f1b";
  int32_t ranks = 1;
  int32_t micro_batches = 1;
  // Stages per rank. Schedules that are not interleaved have a fixed number (ScheduleKind::chunks), for which
  // 1 may be passed too.
  int32_t virtual_stages = 1;
};

struct ScheduleKind {
  std::string_view name;
  std::string_view summary;  // its purpose, for help and docs
  int32_t chunks = 1;        // stages per rank; 0: virtual_stages of the request, at least two
  bool splits_backward = false;
  std::string_view needs;  // the number of micro-batches; empty: any
};

std::span<const ScheduleKind> schedule_kinds();
// nullptr if the name is unknown.
const ScheduleKind* find_schedule_kind(std::string_view name);

// ConfigError if the name is unknown or the schedule does not support these numbers: with the reason and the
// nearest allowed values.
Schedule make_schedule(const ScheduleRequest& request, const Words& words = {});

}  // namespace strata::parallel
