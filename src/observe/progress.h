// A run's progress on standard error: a line per logged step and, on a terminal, a progress bar.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace strata::observe {

struct TerminalStyle {
  bool bar = false;    // redraw a line in place
  bool color = false;  // NO_COLOR is not set
  int width = 80;      // columns
};
// The style for a file descriptor, by default standard error: a bar only on a terminal that is not "dumb".
TerminalStyle terminal_style(int descriptor = 2);

// NaN means unknown and is omitted from the line.
struct StepReport {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;
  std::optional<double> loss = kUnknown;  // nullopt: the step had no targets
  double grad_norm = kUnknown, lr = kUnknown, tokens_per_s = kUnknown;
  double mfu = kUnknown;  // 0 to 1
  double memory_bytes = kUnknown;
};

// "step  120/1000  loss 3.1234  grad 0.981  lr 3.00e-04  41.2k tok/s  MFU 43.1%  1.20 GB  left 2:13:40"
std::string format_step(const StepReport& report, int64_t total_steps, double seconds_left, bool color);
// One line of at most width - 1 columns; items that do not fit are omitted, the last ones first.
std::string format_bar(const StepReport& report, int64_t total_steps, double seconds_left,
                       const TerminalStyle& style);

class Progress {
 public:
  // write receives complete lines, or the bytes that redraw the bar; empty: standard error.
  Progress(int64_t total_steps, TerminalStyle style, std::function<void(std::string_view)> write = {});
  ~Progress();

  // Call after every step. seconds: its duration without checkpoints and evaluation. logged: prints a line.
  void step(const StepReport& report, double seconds, bool logged);
  // Prints a line of text above the bar.
  void note(std::string_view text);
  // Removes the bar.
  void finish();

  void total_steps(int64_t steps) { total_steps_ = steps; }

  // The remaining steps times the mean duration of recent steps; NaN before the first step.
  double seconds_left() const;

 private:
  void clear_bar();

  int64_t total_steps_;
  TerminalStyle style_;
  std::function<void(std::string_view)> write_;
  std::deque<double> recent_;  // seconds of the last steps
  int64_t step_ = 0;
  bool bar_shown_ = false;
  double last_draw_ = -1;
};

}  // namespace strata::observe
