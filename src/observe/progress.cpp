#include "observe/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace strata::observe {
namespace {

constexpr size_t kRecentSteps = 50;
constexpr double kRedrawSeconds = 0.1;
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kReset = "\x1b[0m";
constexpr const char* kEraseLine = "\r\x1b[2K";

int digits(int64_t number) {
  return static_cast<int>(std::to_string(number).size());
}

// "|████▌     |" with `columns` columns between the ends.
std::string bar_of(double share, int columns) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::clamp(share, 0.0, 1.0) * columns * 8);
  std::string bar = "|";
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  const int used = eighths / 8 + (eighths % 8 != 0 ? 1 : 0);
  return bar + std::string(static_cast<size_t>(columns - used), ' ') + "|";
}

}  // namespace

TerminalStyle terminal_style(int descriptor) {
  TerminalStyle style;
  const char* const term = std::getenv("TERM");
  const char* const no_color = std::getenv("NO_COLOR");
  style.bar = ::isatty(descriptor) != 0 && (term == nullptr || std::strcmp(term, "dumb") != 0);
  style.color = style.bar && (no_color == nullptr || *no_color == '\0');
  winsize size{};
  if (style.bar && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

std::string format_step(const StepReport& report, int64_t total_steps, double seconds_left, bool color) {
  const char* const dim = color ? kDim : "";
  const char* const bold = color ? kBold : "";
  const char* const reset = color ? kReset : "";
  std::string line = fmt::format("step {:>{}}/{}", report.step, digits(total_steps), total_steps);
  // The loss is always printed: a NaN matters most.
  line += report.loss ? fmt::format("  {}loss{} {}{:.4f}{}", dim, reset, bold, *report.loss, reset)
                      : fmt::format("  {}no targets{}", dim, reset);
  const auto add = [&](double known, const char* name, const std::string& text) {
    if (!std::isnan(known)) line += fmt::format("  {}{}{}{}", dim, name, reset, text);
  };
  add(report.grad_norm, "grad ", fmt::format("{:.3f}", report.grad_norm));
  add(report.lr, "lr ", fmt::format("{:.2e}", report.lr));
  add(report.tokens_per_s, "", human_count(report.tokens_per_s) + " tok/s");
  add(report.mfu, "MFU ", fmt::format("{:.1f}%", report.mfu * 100));
  add(report.memory_bytes, "", human_bytes(report.memory_bytes));
  add(seconds_left, "left ", human_duration(seconds_left));
  return line;
}

std::string format_bar(const StepReport& report, int64_t total_steps, double seconds_left,
                       const TerminalStyle& style) {
  const double share =
      total_steps > 0 ? static_cast<double>(report.step) / static_cast<double>(total_steps) : 1.0;
  std::string line = fmt::format("step {}/{} {:3.0f}%", report.step, total_steps, std::floor(share * 100));
  int columns = static_cast<int>(line.size());
  const int width = style.width - 1;
  if (columns > width) return line.substr(0, static_cast<size_t>(std::max(0, width)));
  std::vector<std::string> parts;
  if (!std::isnan(seconds_left)) parts.push_back("left " + human_duration(seconds_left));
  if (report.loss && !std::isnan(*report.loss)) parts.push_back(fmt::format("loss {:.4f}", *report.loss));
  if (!std::isnan(report.tokens_per_s)) parts.push_back(human_count(report.tokens_per_s) + " tok/s");
  if (!std::isnan(report.mfu)) parts.push_back(fmt::format("MFU {:.0f}%", report.mfu * 100));
  if (!std::isnan(report.lr)) parts.push_back(fmt::format("lr {:.1e}", report.lr));
  std::string rest;
  constexpr int kLeastBar = 10, kMostBar = 40;
  for (const std::string& part : parts) {
    if (columns + static_cast<int>(rest.size() + part.size()) + 2 > width) break;
    rest += "  " + part;
  }
  // The bar takes the remaining columns; on a narrow terminal it is omitted.
  const int bar = std::min(kMostBar, width - columns - static_cast<int>(rest.size()) - 3);
  if (bar >= kLeastBar) line += " " + bar_of(share, bar);
  return line + rest;
}

Progress::Progress(int64_t total_steps, TerminalStyle style, std::function<void(std::string_view)> write)
    : total_steps_(total_steps), style_(style), write_(std::move(write)) {
  if (!write_) {
    write_ = [](std::string_view text) {
      // A closed terminal must not stop a run.
      (void)!::write(2, text.data(), text.size());
    };
  }
}

Progress::~Progress() {
  finish();
}

void Progress::step(const StepReport& report, double seconds, bool logged) {
  step_ = report.step;
  recent_.push_back(seconds);
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  const double left = seconds_left();
  if (logged) note(format_step(report, total_steps_, left, style_.color));
  const double now = monotonic_seconds();
  if (!style_.bar || (bar_shown_ && now - last_draw_ < kRedrawSeconds)) return;
  write_(kEraseLine + format_bar(report, total_steps_, left, style_));
  bar_shown_ = true;
  last_draw_ = now;
}

void Progress::note(std::string_view text) {
  clear_bar();
  write_(std::string(text) + "\n");
}

void Progress::finish() {
  clear_bar();
}

void Progress::clear_bar() {
  if (std::exchange(bar_shown_, false)) write_(kEraseLine);
}

double Progress::seconds_left() const {
  if (recent_.empty()) return StepReport::kUnknown;
  const double mean =
      std::accumulate(recent_.begin(), recent_.end(), 0.0) / static_cast<double>(recent_.size());
  return mean * static_cast<double>(std::max<int64_t>(0, total_steps_ - step_));
}

}  // namespace strata::observe
