// What a program should cost on a device: the work of each instruction from its op's rule, and its time by
// the device's measured rates. Never from timing the program itself.
#pragma once

#include <string>
#include <vector>

#include "hardware/device_spec.h"
#include "program/program.h"

namespace strata::program {

struct Expected {
  double flops = 0;
  double bytes = 0;       // that the op must at least move
  double cold_share = 0;  // fraction of operand bytes in memory rather than the last-level cache
  double seconds = 0;     // 0 where the device's rates are not known
};

// The instructions of a segment in a steady step. An operand is in the cache if fewer bytes than the cache's
// size were touched since its last use, by the segment or by the action that precedes its first one in the
// schedule.
std::vector<Expected> predict(const Program& program, const SegmentAt& segment, bool accumulates,
                              const hardware::DeviceSpec& device);

struct FamilyTotal {
  std::string family;
  int64_t instructions = 0;
  double flops = 0, bytes = 0, seconds = 0;
};

// A whole step: every action of the schedule.
struct StepTotal {
  double flops = 0, bytes = 0, seconds = 0;
  std::vector<FamilyTotal> families;  // the longest first
  std::vector<FamilyTotal> ops;       // the same by op, under `family`
};
StepTotal predict_step(const Program& program, const hardware::DeviceSpec& device);

}  // namespace strata::program
