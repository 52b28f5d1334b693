// The state of a run, as `strata runs` and `strata doctor` report it.
#pragma once

#include <string_view>

#include "diagnosis/evidence.h"

namespace strata::diagnosis {

enum class RunState {
  kRunning,
  kWaiting,  // a process uses the folder and has not begun to train yet
  kFinished,
  kInterrupted,  // saved and stopped, by request or by its time limit
  kFailed,       // it did not end, and no process uses the folder
};
std::string_view name_of(RunState state);

RunState state_of(const Evidence& evidence);

}  // namespace strata::diagnosis
