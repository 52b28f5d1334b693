// Any bytes as a table of published runs: rejected with a DataError, or rows with values in range.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "plan/published_runs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  try {
    const auto table = planning::parse_runs({reinterpret_cast<const char*>(data), size}, "input");
    for (const auto& problem : table.problems) {
      STRATA_CHECK(problem.line >= 1 && problem.column >= 1, "a problem without a position");
      STRATA_CHECK(planning::to_string(problem).find('\n') == std::string::npos, "a message of two lines");
    }
    for (const auto& run : table.runs) {
      STRATA_CHECK(!run.mfu || (*run.mfu > 0 && *run.mfu <= 2), "an mfu of {}", *run.mfu);
      STRATA_CHECK(!run.layers || *run.layers >= 1, "{} layers", *run.layers);
      const auto seconds = planning::published_step_seconds(run);
      STRATA_CHECK(!seconds || (std::isfinite(*seconds) && *seconds > 0), "a step of {} s", *seconds);
      STRATA_CHECK(
          planning::missing_columns(run, planning::run_columns()).size() <= planning::run_columns().size(),
          "columns");
    }
  } catch (const DataError&) {
    // not a valid table
  }
  return 0;
}
