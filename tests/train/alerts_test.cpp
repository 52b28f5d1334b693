#include "train/alerts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"

namespace strata::training {
namespace {

const char* const kEvent = R"({"event":"alert","at_step":7,"rule":"loss_spike","measured":4.5})";

// A folder with scripts, and the lines that alerts logged.
class AlertLab {
 public:
  AlertLab() : sink_([this](LogLevel, std::string_view line) { lines_.emplace_back(line); }) {}

  Path path(const std::string& name) const { return scratch_ / name; }
  std::string script(const std::string& name, const std::string& text) const {
    put_file(path(name), "#!/bin/sh\n" + text + "\n");
    ::chmod(path(name).c_str(), 0755);
    return path(name).string();
  }
  std::unique_ptr<Alerts> start(std::vector<std::string> command,
                                AlertOptions options = {.end_seconds = 60}) {
    return std::make_unique<Alerts>(files_, scratch_.path(), std::move(command), std::move(options));
  }
  std::string read(const std::string& name) const {
    return std::filesystem::exists(path(name)) ? read_file(path(name)) : "";
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  ScratchFolder scratch_;
  FaultyFileSystem files_;
  std::vector<std::string> lines_;
  LogSink sink_;
};

// Waits until the condition holds; a test that hangs is ended by the runner.
template <typename Condition>
void wait_for(const Condition& holds) {
  while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Alerts, TheProgramGetsArgumentsAndTheEvent) {
  AlertLab lab;
  const std::string save =
      lab.script("save", "printf '%s|' \"$@\" > " + lab.path("arguments").string() + "\ncat > " +
                             lab.path("input").string() + "\necho out\necho err >&2");
  // No shell reads the arguments.
  auto alerts = lab.start({save, "$HOME", "a b", "; touch x", "*"});
  EXPECT_TRUE(alerts->raise("loss_spike", kEvent));
  alerts.reset();
  EXPECT_EQ(lab.read("arguments"), "$HOME|a b|; touch x|*|");
  EXPECT_EQ(lab.read("input"), std::string(kEvent) + "\n");
  const std::string log = lab.read("logs/alert.log");
  EXPECT_NE(log.find("loss_spike: done\nout\nerr\n"), std::string::npos) << log;
  EXPECT_EQ(lab.lines(), std::vector<std::string>{});
}

TEST(Alerts, AfterTheEndNothingIsSent) {
  AlertLab lab;
  auto alerts = lab.start({"true"});
  EXPECT_TRUE(alerts->raise("a", kEvent));
  alerts->finish();
  EXPECT_NE(lab.read("logs/alert.log").find(" a: done"), std::string::npos);
  EXPECT_FALSE(alerts->raise("b", kEvent));
  alerts->finish();
}

TEST(Alerts, WithoutACommandNothingHappens) {
  AlertLab lab;
  EXPECT_FALSE(lab.start({})->raise("loss_spike", kEvent));
  EXPECT_FALSE(std::filesystem::exists(lab.path("logs")));
}

// The process group is killed, with the processes that the command started.
TEST(Alerts, ACommandThatHangsIsKilled) {
  AlertLab lab;
  const std::string hang =
      lab.script("hang", "sleep 1000 &\necho $! > " + lab.path("child").string() + "\nwait");
  auto alerts = lab.start({hang}, {.limit_seconds = 0.3, .end_seconds = 60});
  EXPECT_TRUE(alerts->raise("grad_spike", kEvent));
  alerts.reset();
  const std::string child = "/proc/" + std::to_string(std::stoi(lab.read("child"))) + "/stat";
  wait_for([&] {
    std::string stat;
    std::getline(std::ifstream(child), stat);
    return stat.empty() || stat.find(") Z") != std::string::npos;
  });
  ASSERT_EQ(lab.lines().size(), 1u);
  EXPECT_NE(lab.lines()[0].find("took more than 0.3 s and was killed; the run continues"), std::string::npos)
      << lab.lines()[0];
}

// At the end of the run commands have a moment, and the destructor returns.
TEST(Alerts, TheEndOfTheRunDoesNotWaitLong) {
  AlertLab lab;
  auto alerts = lab.start({lab.script("hang", "sleep 1000")}, {.limit_seconds = 1000, .end_seconds = 0.1});
  for (const char* rule : {"a", "b", "c"}) EXPECT_TRUE(alerts->raise(rule, kEvent));
  alerts.reset();
  ASSERT_EQ(lab.lines().size(), 1u);
  EXPECT_NE(lab.lines()[0].find("end"), std::string::npos) << lab.lines()[0];
}

TEST(Alerts, AFailureIsOneWarning) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"no-such-program-anywhere", "cannot start no-such-program-anywhere: No such file"},
      {"/", "cannot start /: Permission denied"},
      {"exit 3", "exited with code 3"},
      {"kill -9 $$", "was ended by signal 9"}};
  for (const auto& [what, expected] : cases) {
    AlertLab lab;
    const bool is_script = what.find(' ') != std::string::npos;
    auto alerts = lab.start({is_script ? lab.script("fails", what) : what});
    for (const char* rule : {"a", "b", "c"}) EXPECT_TRUE(alerts->raise(rule, kEvent));
    alerts.reset();
    ASSERT_EQ(lab.lines().size(), 1u) << what;
    EXPECT_NE(lab.lines()[0].find(expected), std::string::npos) << lab.lines()[0];
    const std::string log = lab.read("logs/alert.log");
    for (const char* rule : {" a: ", " b: ", " c: "}) EXPECT_NE(log.find(rule), std::string::npos) << log;
  }
}

// During the run, report() logs it on the caller's thread, once.
TEST(Alerts, TheRunReportsAFailureOnItsThread) {
  AlertLab lab;
  auto alerts = lab.start({"no-such-program-anywhere"});
  alerts->report();
  EXPECT_EQ(lab.lines().size(), 0u);
  alerts->raise("a", kEvent);
  wait_for([&] {
    alerts->report();
    return !lab.lines().empty();
  });
  alerts->raise("b", kEvent);
  alerts.reset();
  EXPECT_EQ(lab.lines().size(), 1u);
}

TEST(Alerts, OneCommandAMinuteForEachRule) {
  AlertLab lab;
  double now = 1000;
  AlertOptions options{.end_seconds = 60};
  options.clock = [&now] { return now; };
  auto alerts = lab.start({lab.script("count", "cat >> " + lab.path("seen").string())}, options);
  std::vector<std::string> sent;
  const auto raise = [&](const std::string& rule, double at, bool expected) {
    now = at;
    const std::string text = rule + " at " + std::to_string(at);
    EXPECT_EQ(alerts->raise(rule, text), expected) << text;
    if (expected) sent.push_back(text);
  };
  raise("loss_spike", 1000, true);
  raise("loss_spike", 1000, false);
  raise("plateau", 1001, true);  // another rule
  raise("loss_spike", 1059.9, false);
  raise("loss_spike", 1060, true);  // a minute after the last one that was run, not the last one asked for
  raise("plateau", 1060, false);
  raise("plateau", 1061, true);
  alerts.reset();
  std::string expected;
  for (const std::string& text : sent) expected += text + "\n";
  EXPECT_EQ(lab.read("seen"), expected);
}

// raise() does not wait: not for a command that hangs, not for a full queue.
TEST(Alerts, AThousandAlertsDoNotBlock) {
  AlertLab lab;
  auto alerts =
      lab.start({lab.script("hang", "sleep 1000")}, {.limit_seconds = 1000, .end_seconds = 0, .queued = 8});
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) accepted += alerts->raise("rule " + std::to_string(i), kEvent) ? 1 : 0;
  EXPECT_GE(accepted, 8);
  EXPECT_LE(accepted, 9);  // the queue, and one that runs
}

// A program may close its input or never read; the event may be larger than a pipe.
TEST(Alerts, AProgramNeedNotReadItsInput) {
  AlertLab lab;
  const std::string event = std::string(1 << 20, 'x');
  auto alerts = lab.start({"true"});
  for (const char* rule : {"a", "b", "c"}) alerts->raise(rule, event);
  alerts->set_command({lab.script("close", "exec <&-\nsleep 0.05")});
  for (const char* rule : {"d", "e"}) alerts->raise(rule, event);
  alerts->set_command({lab.script("count", "wc -c > " + lab.path("size").string())});
  alerts->raise("f", event);
  alerts.reset();
  EXPECT_EQ(std::stoi(lab.read("size")), (1 << 20) + 1);
  EXPECT_EQ(lab.lines(), std::vector<std::string>{});
}

TEST(Alerts, TheLogIsBounded) {
  AlertLab lab;
  AlertOptions options{.end_seconds = 60};
  options.log_bytes = 200'000;
  auto alerts = lab.start({lab.script("talk", "head -c 1000000 /dev/zero | tr '\\0' x")}, options);
  for (int i = 0; i < 10; ++i) alerts->raise(std::to_string(i), kEvent);
  alerts.reset();
  EXPECT_EQ(lab.lines(), std::vector<std::string>{});
  const std::string log = lab.read("logs/alert.log"), old = lab.read("logs/alert.log.1");
  EXPECT_NE(log.find(" 9: done"), std::string::npos);
  EXPECT_LE(log.size(), 200'000u);
  EXPECT_LE(old.size(), 200'000u);
  EXPECT_GT(old.size(), 100'000u);
}

TEST(Alerts, AFullDiskIsOneWarning) {
  ScratchFolder scratch;
  std::vector<std::string> lines;
  const LogSink sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  FaultyFileSystem full({.kind = FaultKind::kDiskFull, .at = 1});
  {
    Alerts alerts(full, scratch.path(), {"true"}, {.end_seconds = 60});
    for (const char* rule : {"a", "b"}) alerts.raise(rule, kEvent);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("the run continues"), std::string::npos) << lines[0];
}

// The program starts with standard signals and without the run's files.
TEST(Alerts, TheProgramInheritsNothingElse) {
  AlertLab lab;
  const int open = ::dup(STDERR_FILENO);  // not closed on exec
  const std::string list =
      lab.script("list", "ls /proc/self/fd | tr '\\n' ' ' > " + lab.path("open").string() +
                             "\ngrep -E 'SigBlk|SigIgn' /proc/self/status > " + lab.path("signals").string());
  auto alerts = lab.start({list});
  alerts->raise("a", kEvent);
  alerts.reset();
  ::close(open);
  // ls opens the folder that it lists.
  EXPECT_EQ(lab.read("open"), "0 1 2 3 ");
  // The C library ignores signals 32 and 33, which are its own.
  std::istringstream lines(lab.read("signals"));
  int seen = 0;
  for (std::string name, mask; lines >> name >> mask; ++seen)
    EXPECT_EQ(std::stoull(mask, nullptr, 16) & 0x7fffffff, 0u) << name << " " << mask;
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace strata::training
