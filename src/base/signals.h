// Treats Ctrl-C and SIGTERM as requests to stop: the first one is recorded, the second ends the process
// immediately. So is SIGUSR1, which schedulers send before a job's time is over and mpirun passes on.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata {

// Catches SIGINT, SIGTERM and SIGUSR1 from now on, for the whole process. Only main calls it. Work that
// checks stop_requested() ends by itself; work that does not, deep in a parser or a library, is ended after a
// moment: an unfinished file still has its temporary name.
void catch_stop_signals();

// From now on there is something to save: a signal waits for that, however long it takes.
void save_before_stopping();

// Sets the text to print when a signal ends the process immediately; at most 400 bytes. An empty text prints
// nothing, for one of many processes, or one that has already reported why it ends. `stands_in_for`: a
// process of this machine that prints the same, so that this one prints it only if the other is gone. Called
// by one thread at a time.
void set_stop_text(std::string_view text, int64_t stands_in_for = 0);

// The parent process ends this one by force a second after it has passed on SIGINT or SIGTERM, as mpirun
// does: half a second after one of these the text is printed, even if there is something to save.
void expect_force();

// True once one of them came. The training loop asks between steps; async-signal-safe and cheap.
bool stop_requested();

// What a shell expects of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM; of one that is to
// be started again, kTimeLimitExitCode for SIGUSR1; 0 before any.
int stop_exit_code();

// What long work throws that is asked to stop before there is anything to save. No error: the program ends
// with stop_exit_code().
struct Interrupted {};

// Stopped by its own time limit after a clean save: start it again (EX_TEMPFAIL).
inline constexpr int kTimeLimitExitCode = 75;
// Stopped by the user after a clean save, as by SIGINT.
inline constexpr int kInterruptedExitCode = 130;

}  // namespace strata
