#include "observe/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cstdlib>

#include <cmath>
#include <vector>

namespace strata::observe {
namespace {

const StepReport kReport{.step = 120,
                         .loss = 3.12345,
                         .grad_norm = 0.98142,
                         .lr = 3e-4,
                         .tokens_per_s = 41200,
                         .mfu = 0.431,
                         .memory_bytes = 1.2e9};

// Columns on a terminal: UTF-8 characters; there are no control sequences here.
int columns_of(const std::string& text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

TEST(Progress, ALineHasAllKnownValues) {
  EXPECT_EQ(
      format_step(kReport, 1000, 8020, false),
      "step  120/1000  loss 3.1235  grad 0.981  lr 3.00e-04  41.2k tok/s  MFU 43.1%  1.20 GB  left 2:13:40");
  EXPECT_EQ(format_step({.step = 1}, 10, NAN, false), "step  1/10  loss nan");
  EXPECT_NE(format_step(kReport, 1000, 8020, true).find("\x1b["), std::string::npos);
}

TEST(Progress, TheBarNeverWraps) {
  for (int width = 1; width < 160; ++width) {
    const std::string bar = format_bar(kReport, 1000, 8020, {.bar = true, .width = width});
    EXPECT_LT(columns_of(bar), std::max(width, 2)) << width;
  }
  const std::string wide = format_bar(kReport, 1000, 8020, {.bar = true, .width = 140});
  EXPECT_EQ(wide.find("step 120/1000  12% |████▊"), 0u) << wide;
  EXPECT_NE(wide.find("left 2:13:40  loss 3.1235  41.2k tok/s  MFU 43%  lr 3.0e-04"), std::string::npos)
      << wide;
  const std::string done = format_bar({.step = 1000}, 1000, 0, {.bar = true, .width = 60});
  EXPECT_NE(done.find("100% |"), std::string::npos) << done;
}

TEST(Progress, PrintsPlainLinesWithoutATerminal) {
  std::vector<std::string> written;
  {
    Progress progress(100, {.bar = false}, [&](std::string_view text) { written.emplace_back(text); });
    EXPECT_TRUE(std::isnan(progress.seconds_left()));
    for (int64_t step = 1; step <= 20; ++step) {
      progress.step({.step = step, .loss = 2}, 0.5, step % 10 == 0);
    }
    EXPECT_DOUBLE_EQ(progress.seconds_left(), 40);
  }
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0], "step  10/100  loss 2.0000  left 45 s\n");
}

TEST(Progress, LinesReplaceTheBarAndFinishRemovesIt) {
  std::string written;
  {
    Progress progress(100, {.bar = true, .width = 100}, [&](std::string_view text) { written += text; });
    progress.step({.step = 1, .loss = 2}, 0.5, false);
    EXPECT_EQ(written.find("\r\x1b[2Kstep 1/100"), 0u);
    progress.note("saved");
    EXPECT_TRUE(written.ends_with("\r\x1b[2Ksaved\n"));
    progress.step({.step = 2, .loss = 2}, 0.5, false);
  }
  EXPECT_TRUE(written.ends_with("\r\x1b[2K"));
}

TEST(Progress, TimeLeftFollowsTheLatestSteps) {
  Progress progress(1000, {}, [](std::string_view) {});
  for (int64_t step = 1; step <= 100; ++step) progress.step({.step = step}, step <= 50 ? 10 : 1, false);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 900);
}

TEST(Progress, APipeIsNotATerminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const TerminalStyle style = terminal_style(ends[1]);
  EXPECT_FALSE(style.bar || style.color);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Progress, NoColorAndDumbTerminalsAreRespected) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0)
    GTEST_SKIP() << "no pseudo-terminal";
  const int user_end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(user_end, 0);
  const winsize size{.ws_row = 24, .ws_col = 57, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(terminal_style(user_end).bar && terminal_style(user_end).color);
  EXPECT_EQ(terminal_style(user_end).width, 57);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(terminal_style(user_end).bar && !terminal_style(user_end).color);
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(terminal_style(user_end).bar);
  ::close(user_end);
  ::close(terminal);
}

}  // namespace
}  // namespace strata::observe
