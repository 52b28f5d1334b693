// Any bytes as the file of a pipeline schedule: rejected with a ConfigError, or a schedule that runs to its
// end, round-trips and can be drawn.
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
                 "the step is too short");
    STRATA_CHECK(parallel::send_buffers_of(schedule) >= 1, "no send buffers");
    STRATA_CHECK(parallel::parse_schedule(parallel::to_json(schedule), "again") == schedule,
                 "a different schedule");
    STRATA_CHECK(!parallel::draw_text(schedule, simulation).empty(), "nothing drawn");
    STRATA_CHECK(!parallel::draw_svg(schedule, simulation).empty(), "nothing drawn");
  } catch (const ConfigError&) {
    // not a valid schedule
  }
  return 0;
}
