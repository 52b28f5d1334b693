#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <cstdlib>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/kernel_files.h"
#include "base/parallel.h"
#include "base/signals.h"
#include "cli/verbs.h"

namespace {

// How often an idle compute thread looks for work before it sleeps: a few hundred microseconds, more than the
// gaps within a step. The OpenMP library's default is 30 times that, as long as the time slices of other
// programs. If these share the cores, a thread that uses up its slice by spinning is not running when work
// arrives, and a step takes many times as long.
constexpr const char* kSpins = "10000";

bool computes(std::string_view verb) {
  static constexpr std::string_view kVerbs[] = {"train", "eval", "generate", "check", "bench", "doctor"};
  return std::find(std::begin(kVerbs), std::end(kVerbs), verb) != std::end(kVerbs);
}

// libgomp reads the number once, before main, and has no call to set it: the program executes itself again in
// the same process with the variable set. A variable set by the user is respected.
void bound_spinning(int argc, char** argv) {
  if (argc < 2 || !computes(argv[1])) return;
  if (getenv("GOMP_SPINCOUNT") != nullptr || getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", kSpins, 1);
  // If both fail, the run continues without it.
  execv("/proc/self/exe", argv);
  execv(strata::program_path().c_str(), argv);
}

}  // namespace

int main(int argc, char** argv) {
  bound_spinning(argc, argv);
  strata::catch_stop_signals();
  strata::keep_to_cpu_quota();
#ifdef __linux__
  prctl(PR_SET_NAME, "strata");  // after "exe" was started, that would be its name in ps
#endif
  return strata::cli::run_command_line(argc, argv);
}
