// The published pipeline schedules, made from the number of ranks and of micro-batches.
//
//   gpipe           Huang et al., GPipe (2019): all forward, then all backward
//   1f1b            Narayanan et al., PipeDream-Flush (2021): backward as soon as it can be
//   interleaved     Narayanan et al., Megatron-LM (SC 2021): several stages a rank, micro-batches in groups
//   zb_h1           Qi et al., Zero Bubble (2024): 1f1b's memory, W where ranks would wait
//   interleaved_zb  zb_h1's rule for W over interleaved stages
//   zbv             Qi et al., Zero Bubble (2024): two stages a rank, folded into a V
//   v_half, v_min   Qi et al., Controllable Memory (2024): a pattern repeated every six slots, W in the gaps
//   dualpipev       DeepSeek's DualPipe cut in half: zbv's stages, forward and backward in overlapped pairs
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parallel/schedule.h"
#include "parallel/words.h"

namespace strata::parallel {

// What a schedule is made from.
struct ScheduleRequest {
  std::string name = "1f1b";
  int32_t ranks = 1;
  int32_t micro_batches = 1;
  // Stages a rank. What is not interleaved has a number of its own (ScheduleKind::chunks), and takes 1 for
  // it.
  int32_t virtual_stages = 1;
};

struct ScheduleKind {
  std::string_view name;
  std::string_view summary;  // what it is good for, as help and docs say it
  int32_t chunks = 1;        // stages a rank; 0: as the request says, at least two
  bool splits_backward = false;
  std::string_view needs;  // of micro-batches; empty: any number
};

std::span<const ScheduleKind> schedule_kinds();
// nullptr where there is none of that name.
const ScheduleKind* find_schedule_kind(std::string_view name);

// ConfigError where there is no such schedule, or it does not exist for these numbers: the reason and the
// nearest that it allows.
Schedule make_schedule(const ScheduleRequest& request, const Words& words = {});

}  // namespace strata::parallel
