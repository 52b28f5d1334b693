// A schedule in pictures, as papers draw them: ranks as rows, time from left to right.
#pragma once

#include <string>

#include "parallel/schedule.h"
#include "parallel/simulate.h"

namespace strata::parallel {

struct DrawOptions {
  int columns = 100;      // of a terminal; text alone
  std::string unit = "";  // of time
};

// "takes 33 ms; bubble 27.3 % of all ranks' time; peak 4 activations".
std::string figures_text(const Simulation& simulation, const DrawOptions& options = {});

// For a terminal. Each action with its kind and micro-batch, and where ranks have several stages
// a letter for the chunk, in as many bands as that takes; where it takes more than four, one band that shows
// for each stretch of time the kind of action that takes most of it.
std::string draw_text(const Schedule& schedule, const Simulation& simulation,
                      const DrawOptions& options = {});

// An SVG file: colours by kind, shades by chunk, micro-batch numbers where there is room, a legend, an axis,
// and each rank's bubble and peak.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const DrawOptions& options = {});

}  // namespace strata::parallel
