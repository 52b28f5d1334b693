// Fits data/planning/fitted.toml on data/planning/published_runs.csv and prints the errors as Markdown:
//   plan_fit data/planning/published_runs.csv data/planning/fitted.toml DATE
#include <fmt/core.h>

#include <cstdio>

#include "base/error.h"
#include "plan/fit_profiles.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: plan_fit RUNS.csv FITTED.toml DATE\n", stderr);
    return 2;
  }
  try {
    using namespace strata;
    const auto runs = planning::read_runs(argv[1]);
    const auto fit = planning::fit_and_validate(planning::builtin_pricer(), runs, argv[3]);
    write_file_atomically(posix_file_system(), argv[2], planning::fitted_file(fit.profiles));
    fmt::print("{}", planning::to_text(fit.report));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
