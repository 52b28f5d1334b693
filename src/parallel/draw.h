// Draws schedules as papers do: one row per rank, time from left to right.
#pragma once

#include <string>

#include "parallel/schedule.h"
#include "parallel/simulate.h"

namespace strata::parallel {

struct DrawOptions {
  int columns = 100;      // width of the terminal; draw_text only
  std::string unit = "";  // of times
};

// "takes 33 ms; bubble 27.3 % of all ranks' time; peak 4 activations".
std::string figures_text(const Simulation& simulation, const DrawOptions& options = {});

// For a terminal. Shows the kind and micro-batch of each action, and a letter for the chunk if ranks have
// several stages, in up to four bands of rows. Longer steps become one band, whose columns show the kind of
// action that takes most of their time.
std::string draw_text(const Schedule& schedule, const Simulation& simulation,
                      const DrawOptions& options = {});

// An SVG file: colours by kind, shades by chunk, micro-batch numbers if they fit, a legend, an axis, and each
// rank's bubble and peak.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const DrawOptions& options = {});

}  // namespace strata::parallel
