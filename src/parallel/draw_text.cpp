#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "parallel/draw.h"

namespace strata::parallel {
namespace {

using enum ActionKind;

constexpr int kMostBands = 4;
constexpr int kLeastColumns = 40;  // for actions, however narrow the terminal is

class TextDrawing {
 public:
  TextDrawing(const Schedule& schedule, const Simulation& simulation, const DrawOptions& options)
      : options_(options), schedule_(schedule), simulation_(simulation), chunk_(schedule.chunks()) {
    prefix_ = fmt::format(" rank {} ", schedule.rank_count() - 1).size();
    const auto suffix = static_cast<int>(suffix_of(0).size());
    width_ = std::max(kLeastColumns, options.columns - static_cast<int>(prefix_) - suffix);
    has_chunks_ = schedule.stages > schedule.rank_count();
  }

  std::string draw() {
    std::string text = fmt::format("{}: {}\n", schedule_.name, sizes_text(schedule_));
    const double scale = labelled_scale();
    const double columns = std::round(simulation_.makespan * scale);
    if (columns <= static_cast<double>(width_) * kMostBands) {
      draw_bands(text, scale, static_cast<int>(columns));
    } else {
      draw_compressed(text);
    }
    return text + figures_text(simulation_, options_) + "\n";
  }

 private:
  std::string chunk_letter(int32_t stage) const {
    if (!has_chunks_) return "";
    const int32_t chunk = chunk_[static_cast<size_t>(stage)];
    return chunk < 26 ? std::string(1, static_cast<char>('a' + chunk)) : fmt::format(".{}", chunk);
  }

  std::string label_of(const Action& a) const {
    const std::string_view letter = a.kind == kForwardBackward ? "F" : letters_of(a.kind);
    std::string label = fmt::format("{}{}{}", letter, a.micro_batch, chunk_letter(a.stage));
    if (a.kind == kForwardBackward)
      label += fmt::format("&B{}{}", a.backward_micro_batch, chunk_letter(a.backward_stage));
    return label;
  }

  // Columns per unit of time, so that the label of every action and a blank fit.
  double labelled_scale() const {
    double scale = 0;
    for_each([&](int32_t, const Action& action, double start, double end) {
      if (end > start)
        scale = std::max(scale, static_cast<double>(label_of(action).size() + 1) / (end - start));
    });
    return scale;
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (int32_t rank = 0; rank < schedule_.rank_count(); ++rank) {
      const auto r = static_cast<size_t>(rank);
      for (size_t i = 0; i < schedule_.ranks[r].size(); ++i)
        visit(rank, schedule_.ranks[r][i], simulation_.ranks[r].start[i], simulation_.ranks[r].end[i]);
    }
  }

  std::string suffix_of(int32_t rank) const {
    const double makespan = std::max(simulation_.makespan, 1e-300);
    return fmt::format("  {:>5.1f} % {:>6.4g}", 100 * simulation_.bubble(rank) / makespan,
                       simulation_.ranks[static_cast<size_t>(rank)].peak);
  }

  // Columns `begin` to `end` of each rank's row, below a line with the time.
  void add_band(std::string& text, const std::vector<std::string>& rows, int begin, int end, double scale,
                bool is_last) const {
    const std::string from = fmt::format("{:.6g}", begin / scale);
    // The last column may end before or after the step does.
    const std::string to = fmt::format("{:.6g}", is_last ? simulation_.makespan : end / scale);
    const size_t shown = static_cast<size_t>(end - begin);
    text += fmt::format("{:<{}}{}{:>{}}{}\n", " time", prefix_, from, to,
                        std::max(to.size() + 1, shown > from.size() ? shown - from.size() : 0),
                        is_last ? "   bubble   peak" : "");
    for (int32_t rank = 0; rank < schedule_.rank_count(); ++rank) {
      const std::string& row = rows[static_cast<size_t>(rank)];
      text += fmt::format("{:<{}}{}{}\n", fmt::format(" rank {}", rank), prefix_,
                          row.substr(static_cast<size_t>(begin), shown), is_last ? suffix_of(rank) : "");
    }
  }

  void draw_bands(std::string& text, double scale, int columns) const {
    std::vector<std::string> rows(schedule_.ranks.size(), std::string(static_cast<size_t>(columns), '.'));
    for_each([&](int32_t rank, const Action& action, double start, double end) {
      const auto begin = static_cast<size_t>(std::lround(start * scale));
      const auto length = static_cast<size_t>(std::lround(end * scale)) - begin;
      if (length == 0) return;
      std::string cell = label_of(action);
      if (length > cell.size()) {
        cell.resize(length, '-');
        cell.back() = ' ';
      }
      rows[static_cast<size_t>(rank)].replace(begin, length, cell);
    });
    for (int begin = 0; begin < columns; begin += width_) {
      const int end = std::min(begin + width_, columns);
      add_band(text, rows, begin, end, scale, end == columns);
    }
    text += has_chunks_ ? "F3a: micro-batch 3 in the rank's first stage, F3b in its second\n" : "";
  }

  void draw_compressed(std::string& text) const {
    const double scale = width_ / simulation_.makespan;
    // Time taken, by rank, column, and kind; odd chunks are separate.
    constexpr size_t kSigns = kActionKinds * 2;
    constexpr std::string_view kLetters = "FfIiWwBb&&";
    std::vector<std::array<double, kSigns>> taken(schedule_.ranks.size() * static_cast<size_t>(width_));
    for_each([&](int32_t rank, const Action& action, double start, double end) {
      const auto chunk = static_cast<size_t>(chunk_[static_cast<size_t>(action.stage)]);
      const size_t sign = static_cast<size_t>(action.kind) * 2 + chunk % 2;
      const double first = start * scale, last = end * scale;
      for (int column = static_cast<int>(first); column < width_ && column < last; ++column) {
        taken[static_cast<size_t>(rank) * static_cast<size_t>(width_) + static_cast<size_t>(column)][sign] +=
            std::min<double>(last, column + 1) - std::max<double>(first, column);
      }
    });
    std::vector<std::string> rows;
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      std::string& row = rows.emplace_back();
      for (size_t column = 0; column < static_cast<size_t>(width_); ++column) {
        const auto& of_column = taken[rank * static_cast<size_t>(width_) + column];
        const auto most = std::max_element(of_column.begin(), of_column.end());
        double busy = 0;
        for (const double each : of_column) busy += each;
        row += busy < 0.5 ? '.' : kLetters[static_cast<size_t>(most - of_column.begin())];
      }
    }
    add_band(text, rows, 0, width_, scale, true);
    text += has_chunks_ ? "lowercase: the rank's second stage, and every other one after it\n" : "";
  }

  const DrawOptions& options_;
  const Schedule& schedule_;
  const Simulation& simulation_;
  std::vector<int32_t> chunk_;
  size_t prefix_ = 0;
  int width_ = 0;
  bool has_chunks_ = false;
};

}  // namespace

std::string figures_text(const Simulation& simulation, const DrawOptions& options) {
  return fmt::format("takes {:.6g}{}{}; bubble {:.1f} % of all ranks' time; peak {:.6g} activations",
                     simulation.makespan, options.unit.empty() ? "" : " ", options.unit,
                     100 * simulation.bubble_share(), simulation.peak());
}

std::string draw_text(const Schedule& schedule, const Simulation& simulation, const DrawOptions& options) {
  return TextDrawing(schedule, simulation, options).draw();
}

}  // namespace strata::parallel
