// What the terminal shows of a run: a line for every logged step and, on a terminal, a bar redrawn in place.
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
// Of a file descriptor, standard error by default: a bar only on a terminal that is not "dumb".
TerminalStyle terminal_style(int descriptor = 2);

// NaN stands for "not known", which is left out of the line.
struct StepReport {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;
  std::optional<double> loss = kUnknown;  // nothing: the step had no target
  double grad_norm = kUnknown, lr = kUnknown, tokens_per_s = kUnknown;
  double mfu = kUnknown;  // 0 to 1
  double memory_bytes = kUnknown;
};

// "step  120/1000  loss 3.1234  grad 0.981  lr 3.00e-04  41.2k tok/s  MFU 43.1%  1.20 GB  left 2:13:40"
std::string format_step(const StepReport& report, int64_t total_steps, double seconds_left, bool color);
// One line of at most width - 1 columns; what does not fit is left out, from the end.
std::string format_bar(const StepReport& report, int64_t total_steps, double seconds_left,
                       const TerminalStyle& style);

class Progress {
 public:
  // write receives whole lines, or the bytes that redraw the bar; standard error when empty.
  Progress(int64_t total_steps, TerminalStyle style, std::function<void(std::string_view)> write = {});
  ~Progress();

  // After every step. seconds: what it took, without checkpoints and evaluation. Prints a line where logged.
  void step(const StepReport& report, double seconds, bool logged);
  // A line of text above the bar.
  void note(std::string_view text);
  // Removes the bar.
  void finish();

  void total_steps(int64_t steps) { total_steps_ = steps; }

  // Steps to go times the mean of the last steps' time; NaN before the first.
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
