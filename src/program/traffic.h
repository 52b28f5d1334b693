// What a rank sends to others in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace strata::program {

struct AxisTraffic {
  std::string axis;  // of the mesh; several, with " x " between, along which experts are shared
  int64_t ranks = 1;
  int64_t calls = 0;       // collectives of a step
  int64_t sent_bytes = 0;  // of the largest rank, to all others together
};

// By axis of the mesh that has several ranks (program/exchange.h). Traffic to experts assumes that they are equally
// busy.
std::vector<AxisTraffic> traffic_of(const Program& program, const CompileOptions& options);

}  // namespace strata::program
