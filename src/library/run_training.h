// Runs training on the ranks that were started: shared by the library and the command line.
#pragma once

#include <functional>

#include "train/trainer.h"

namespace strata::library {

// `read` returns the options of the run; it is called once the other processes can learn of its errors. `threads`: ranks
// in this process. In one of several processes an error ends the job: this does not return then. Throws Interrupted if
// `stop` asked before there was anything to save.
training::TrainResult train_on_ranks(const std::function<training::RunOptions()>& read, int64_t threads,
                                     const std::function<bool()>& stop);

}  // namespace strata::library
