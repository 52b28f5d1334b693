// Any bytes as the file of a pipeline schedule: refused with a ConfigError, or one that runs to its end, is
// written as it was read, and can be drawn.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "parallel/draw.h"
#include "parallel/messages.h"
#include "parallel/schedule_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  try {
    const auto schedule = parallel::parse_schedule({reinterpret_cast<const char*>(data), size}, "input");
    const auto costs = parallel::even_costs(schedule);
    const auto simulation = parallel::simulate(schedule, costs);
    STRATA_CHECK(simulation.makespan >= parallel::critical_path(schedule, costs) * (1 - 1e-9),
                 "too short a step");
    STRATA_CHECK(parallel::send_buffers_of(schedule) >= 1, "no room to send");
    STRATA_CHECK(parallel::parse_schedule(parallel::to_json(schedule), "again") == schedule,
                 "another schedule");
    STRATA_CHECK(!parallel::draw_text(schedule, simulation).empty(), "nothing drawn");
    STRATA_CHECK(!parallel::draw_svg(schedule, simulation).empty(), "nothing drawn");
  } catch (const ConfigError&) {
    // the answer to what cannot run
  }
  return 0;
}
