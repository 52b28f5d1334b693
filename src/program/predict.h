// What a program should cost on a machine: the work of each instruction from its op's rule, its time by the
// device's rates, and that of exchanges by the links between ranks. Never from timing the program itself.
#pragma once

#include <string>
#include <vector>

#include "hardware/cluster_spec.h"
#include "program/program.h"

namespace strata::program {

struct Expected {
  double flops = 0;
  double bytes = 0;       // that the op must at least move
  double cold_share = 0;  // fraction of operand bytes in memory rather than the last-level cache
  double seconds = 0;     // 0 where the device's rates are not known
  double exchange = 0;    // s of it, for what passes between ranks
};

// The instructions of a segment in a steady step. An operand is in the cache if fewer bytes than the cache's
// size were touched since its last use, by the segment or by the action that precedes its first one in the
// schedule.
// `payload`: what sums of gradients are sent as.
std::vector<Expected> predict(const Program& program, const SegmentAt& segment, bool accumulates,
                              const hardware::Machine& machine, DType payload = DType::kF32);

// The costs of a step's actions. What an action costs depends on its list and on the action before it: a few kinds,
// however many actions there are.
class ActionCosts {
 public:
  struct Kind {
    size_t first = 0;   // index in Program::script of the first action of this kind
    int64_t times = 0;  // actions of this kind
    std::vector<Expected> instructions;
  };
  ActionCosts(const Program& program, const hardware::Machine& machine, DType payload);
  const std::vector<Kind>& kinds() const { return kinds_; }
  // Of an action, by its index in Program::script.
  size_t kind_of(size_t place) const { return kind_of_[place]; }

 private:
  std::vector<Kind> kinds_;
  std::vector<size_t> kind_of_;  // by index in Program::script
};

struct FamilyTotal {
  std::string family;
  int64_t instructions = 0;
  double flops = 0, bytes = 0, seconds = 0;
};

// The work of a whole step: every action of the schedule, without overlap (program/price.h).
struct StepTotal {
  double flops = 0, bytes = 0, seconds = 0;
  std::vector<FamilyTotal> families;  // the longest first
  std::vector<FamilyTotal> ops;       // the same by op, under `family`
};
StepTotal predict_step(const Program& program, const hardware::Machine& machine, DType payload = DType::kF32);

}  // namespace strata::program
