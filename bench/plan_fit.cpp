// Fits data/planning/fitted.toml on data/planning/published_runs.csv and prints the errors as Markdown:
//   plan_fit data/planning/published_runs.csv data/planning/fitted.toml DATE
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

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
    if (std::getenv("ROWS")) {
      const auto pr = planning::builtin_pricer().with(fit.profiles);
      const auto tb = planning::fit_table(pr, runs);
      for (const auto& r : tb.rows) {
        const auto q = pr.price(*r.run);
        const auto& s = q.step;
        const double T = s.total();
        fmt::print(
            "ROW {:44} {} {:+.0f}% t={:.3f} mm:{:.2f} att:{:.2f} el:{:.2f} loss:{:.2f} rec:{:.2f} tp:{:.2f} ep:{:.2f} pp:{:.2f} dp:{:.2f} bub:{:.2f} opt:{:.2f} fix:{:.2f} mem {:.1f}/{:.1f}\n",
            r.run->id, "c", 100 * (T / r.seconds - 1), r.seconds, s.matmuls / T, s.attention / T,
            s.elementwise / T, s.loss / T, s.recompute / T, s.tensor / T, s.expert / T, s.pipeline / T,
            s.data / T, s.bubble / T, s.optimizer / T, s.fixed / T, q.memory_gb,
            r.run->memory_gb.value_or(0));
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
