#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>
#include <vector>

#include "observe/markup.h"
#include "parallel/draw.h"

namespace strata::parallel {
namespace {

using enum ActionKind;

// In pixels.
constexpr double kRowHeight = 26, kRowGap = 4, kTop = 74, kLeft = 70, kRight = 130, kBelow = 84;
constexpr double kShortestLabelled = 22, kLeastWidth = 640, kMostWidth = 3200;
constexpr double kDigitWidth = 6.5;

struct Colour {
  std::string_view name;
  std::string_view meaning;
  double hue;  // degrees
};
// By kind; FB is drawn with its F above its B.
constexpr std::array<Colour, 4> kColours = {{{"F", "forward", 212},
                                             {"I", "input gradient", 28},
                                             {"W", "weight gradient", 140},
                                             {"B", "both gradients", 275}}};

// #rrggbb for a hue at a lightness between 0 and 1, with a saturation that suits large areas.
std::string rgb(double hue, double lightness) {
  constexpr double kSaturation = 0.55;
  const double reach = kSaturation * std::min(lightness, 1 - lightness);
  const auto part = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    const double value = lightness - reach * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}));
    return static_cast<int>(std::lround(255 * value));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", part(0), part(8), part(4));
}

// The first chunk is light, the last dark.
double lightness_of(int32_t chunk, int32_t chunks) {
  return chunks <= 1 ? 0.72 : 0.82 - 0.38 * chunk / (chunks - 1);
}

// A round number, about a tenth of `span`.
double tick_of(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 10)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= span / 10) return power * factor;
  }
  return power * 10;
}

class SvgDrawing {
 public:
  SvgDrawing(const Schedule& schedule, const Simulation& simulation, const DrawOptions& options)
      : options_(options), schedule_(schedule), simulation_(simulation), chunk_(schedule.chunks()) {
    chunks_ = 1 + *std::max_element(chunk_.begin(), chunk_.end());
    double shortest = simulation.makespan;
    for (const RankTimes& rank : simulation.ranks) {
      for (size_t i = 0; i < rank.start.size(); ++i) {
        if (rank.end[i] > rank.start[i]) shortest = std::min(shortest, rank.end[i] - rank.start[i]);
      }
    }
    const double span = std::max(simulation.makespan, 1e-300);
    scale_ = std::clamp(kShortestLabelled / shortest * span, kLeastWidth, kMostWidth) / span;
    width_ = scale_ * span;
    bottom_ = kTop + schedule.rank_count() * (kRowHeight + kRowGap);
  }

  std::string draw() {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}">)",
        kLeft + width_ + kRight, bottom_ + kBelow);
    add("\n<style>text{{font:11px sans-serif;fill:#222}}.n{{text-anchor:middle}}.e{{text-anchor:end}}"
        ".d{{fill:#fff}}.t{{font-size:15px}}.a{{stroke:#888}}rect{{stroke:#fff;stroke-width:.5}}");
    for (size_t kind = 0; kind < kColours.size(); ++kind) {
      for (int32_t chunk = 0; chunk < chunks_; ++chunk) {
        add(".{}{}{{fill:{}}}", kColours[kind].name, chunk,
            rgb(kColours[kind].hue, lightness_of(chunk, chunks_)));
      }
    }
    add("</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    add_title();
    for (int32_t rank = 0; rank < schedule_.rank_count(); ++rank) add_rank(rank);
    add_axis();
    add_legend();
    return text_ + "</svg>\n";
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void add_title() {
    add("<text class=\"t\" x=\"{}\" y=\"24\">{}</text>\n", kLeft, observe::escape_markup(schedule_.name));
    add("<text x=\"{}\" y=\"44\">{}; {}</text>\n", kLeft, sizes_text(schedule_),
        figures_text(simulation_, options_));
    add("<text class=\"e\" x=\"{0}\" y=\"{2}\">bubble</text><text class=\"e\" x=\"{1}\" "
        "y=\"{2}\">peak</text>\n",
        kLeft + width_ + 60, kLeft + width_ + 110, kTop - 8);
  }

  double top_of(int32_t rank) const { return kTop + rank * (kRowHeight + kRowGap); }

  void add_half(size_t colour, int32_t micro_batch, int32_t stage, double x, double y, double width,
                double height) {
    const int32_t chunk = chunk_[static_cast<size_t>(stage)];
    add("<rect class=\"{}{}\" x=\"{:.5g}\" y=\"{:.5g}\" width=\"{:.4g}\" height=\"{:.4g}\"/>",
        kColours[colour].name, chunk, x, y, width, height);
    const std::string label = fmt::format("{}", micro_batch);
    if (kDigitWidth * static_cast<double>(label.size()) + 2 > width) return;
    const bool is_dark = lightness_of(chunk, chunks_) < 0.55;
    add("<text class=\"n{}\" x=\"{:.5g}\" y=\"{:.5g}\">{}</text>", is_dark ? " d" : "", x + width / 2,
        y + height / 2 + 4, label);
  }

  void add_rank(int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    const double y = top_of(rank);
    add("<text class=\"e\" x=\"{}\" y=\"{}\">rank {}</text>", kLeft - 8, y + kRowHeight / 2 + 4, rank);
    add("<rect x=\"{}\" y=\"{}\" width=\"{:.5g}\" height=\"{}\" fill=\"#eee\"/>\n", kLeft, y, width_,
        kRowHeight);
    const RankTimes& times = simulation_.ranks[r];
    for (size_t i = 0; i < schedule_.ranks[r].size(); ++i) {
      const Action& action = schedule_.ranks[r][i];
      const double x = kLeft + times.start[i] * scale_, width = (times.end[i] - times.start[i]) * scale_;
      if (action.kind == kForwardBackward) {
        add_half(0, action.micro_batch, action.stage, x, y, width, kRowHeight / 2);
        add_half(3, action.backward_micro_batch, action.backward_stage, x, y + kRowHeight / 2, width,
                 kRowHeight / 2);
      } else {
        add_half(static_cast<size_t>(action.kind), action.micro_batch, action.stage, x, y, width, kRowHeight);
      }
      add("\n");
    }
    add("<text class=\"e\" x=\"{}\" y=\"{}\">{:.1f} %</text>", kLeft + width_ + 60, y + kRowHeight / 2 + 4,
        100 * simulation_.bubble(rank) / std::max(simulation_.makespan, 1e-300));
    add("<text class=\"e\" x=\"{}\" y=\"{}\">{:.4g}</text>\n", kLeft + width_ + 110, y + kRowHeight / 2 + 4,
        times.peak);
  }

  void add_axis() {
    const double y = bottom_ + 6;
    add("<path class=\"a\" d=\"M{} {}h{:.5g}\"/>", kLeft, y, width_);
    const double tick = tick_of(std::max(simulation_.makespan, 1e-300));
    for (int i = 0; i * tick <= simulation_.makespan; ++i) {
      const double x = kLeft + i * tick * scale_;
      add("<path class=\"a\" d=\"M{0:.5g} {1}v4\"/><text class=\"n\" x=\"{0:.5g}\" y=\"{2}\">{3:.6g}</text>",
          x, y, y + 17, i * tick);
    }
    add("\n<text x=\"{:.5g}\" y=\"{}\">{}</text>\n", kLeft + width_ + 8, y + 4,
        options_.unit.empty() ? "time" : options_.unit);
  }

  bool shows(size_t colour) const {
    return std::any_of(schedule_.ranks.begin(), schedule_.ranks.end(),
                       [&](const std::vector<Action>& actions) {
                         return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
                           return static_cast<size_t>(action.kind) == colour ||
                                  (action.kind == kForwardBackward && (colour == 0 || colour == 3));
                         });
                       });
  }

  void add_legend() {
    const double y = bottom_ + 48;
    double x = kLeft;
    for (size_t colour = 0; colour < kColours.size(); ++colour) {
      if (!shows(colour)) continue;
      for (int32_t chunk = 0; chunk < chunks_; ++chunk) {
        add("<rect class=\"{}{}\" x=\"{}\" y=\"{}\" width=\"14\" height=\"14\"/>", kColours[colour].name,
            chunk, x, y);
        x += 14;
      }
      const std::string meaning = fmt::format("{} {}", kColours[colour].name, kColours[colour].meaning);
      add("<text x=\"{}\" y=\"{}\">{}</text>", x + 6, y + 11, meaning);
      x += 6 + kDigitWidth * static_cast<double>(meaning.size()) + 16;
    }
    const std::string_view shades =
        chunks_ > 1 ? "darker: later stages of the rank; numbers: micro-batches" : "numbers: micro-batches";
    add("<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft, y + 30, shades);
  }

  const DrawOptions& options_;
  const Schedule& schedule_;
  const Simulation& simulation_;
  std::vector<int32_t> chunk_;
  int32_t chunks_ = 1;
  double scale_ = 1, width_ = 0, bottom_ = 0;
  std::string text_;
};

}  // namespace

std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const DrawOptions& options) {
  return SvgDrawing(schedule, simulation, options).draw();
}

}  // namespace strata::parallel
