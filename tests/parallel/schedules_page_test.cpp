// Checks the table of schedules in docs/parallelism.md, or writes it with STRATA_WRITE_SCHEDULES=1.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/file.h"
#include "parallel/messages.h"
#include "parallel/schedules.h"
#include "parallel/simulate.h"

namespace strata::parallel {
namespace {

constexpr int32_t kRanks = 8, kMicroBatches = 32;

// Asserted by sweep_test.cpp.
std::string_view formula_of(std::string_view name) {
  static const std::map<std::string_view, std::string_view> formulas = {
      {"gpipe", "(P-1)(F+I+W)"},
      {"1f1b", "(P-1)(F+I+W)"},
      {"interleaved", "(P-1)(F+I+W)/v"},
      {"zb_h1", "(P-1) max(F+I-W, F, I)"},
      {"interleaved_zb", "(P-1) max(F+I-W, F, I)/v"},
      {"zbv", "(P-1)F/2 if F = I and F/2 ≤ W ≤ F"},
      {"v_half", "as simulated"},
      {"v_min", "as simulated"},
      {"dualpipev", "(P-1)(F+2I-W)/2 if F = I ≥ W"}};
  return formulas.at(name);
}

std::string table() {
  std::string text =
      "| schedule | good for | stages per rank | micro-batches | backward | bubble of a rank | bubble | peak "
      "| messages | send buffers |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  const double least = 2.0 * (kRanks - 1) * kMicroBatches;
  for (const ScheduleKind& kind : schedule_kinds()) {
    const int32_t chunks = kind.chunks == 0 ? 2 : kind.chunks;
    const Schedule schedule = make_schedule({std::string(kind.name), kRanks, kMicroBatches, chunks});
    const Simulation simulation = simulate(schedule, even_costs(schedule));
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {:.1f} % | {:.4g} | {:.2g} | {} |\n", kind.name,
                        kind.summary, kind.chunks == 0 ? "v ≥ 2 (here 2)" : fmt::format("{}", kind.chunks),
                        kind.needs.empty() ? "any" : kind.needs, kind.splits_backward ? "I, W" : "B",
                        formula_of(kind.name), 100 * simulation.bubble_share(), simulation.peak(),
                        static_cast<double>(messages_of(schedule).size()) / least, send_buffers_of(schedule));
  }
  return text;
}

TEST(SchedulesPage, HasTheCurrentTable) {
  const Path path = STRATA_PARALLELISM_PAGE;
  std::string text = read_file(path);
  const size_t begin = text.find("| schedule |");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.find("\n\n", begin) + 1;
  if (std::getenv("STRATA_WRITE_SCHEDULES") != nullptr) {
    text.replace(begin, end - begin, table());
    write_file_atomically(posix_file_system(), path, text);
  }
  EXPECT_NE(text.find("\n\n" + table() + "\n"), std::string::npos)
      << "docs/parallelism.md is out of date; run this test with STRATA_WRITE_SCHEDULES=1";
}

}  // namespace
}  // namespace strata::parallel
