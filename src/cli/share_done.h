// The progress of a long evaluation.
#pragma once

#include <fmt/core.h>

#include <cstdio>

#include "base/clock.h"
#include "base/log.h"
#include "observe/progress.h"

namespace strata::cli {

// A line redrawn in place on a terminal, else one every half minute.
class ShareDone {
 public:
  void operator()(double share) {
    const double now = monotonic_seconds();
    if (now - shown_ < (terminal_ ? 0.2 : 30)) return;
    shown_ = now;
    const std::string text = fmt::format("{:5.1f} % done, left {}", 100 * share,
                                         human_duration((now - begin_) * (1 - share) / share));
    if (terminal_) {
      fmt::print(stderr, "\r{}\x1b[K", text);
      drawn_ = true;
    } else {
      log_info("{}", text);
    }
  }
  ~ShareDone() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool terminal_ = observe::terminal_style().bar, drawn_ = false;
  double begin_ = monotonic_seconds(), shown_ = begin_;
};

}  // namespace strata::cli
