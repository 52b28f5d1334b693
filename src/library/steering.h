// Sends requests to a running run, and waits for its answers: strata stop, save and set.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/control.h"

namespace strata::library {

// A request that RUN/control now holds.
struct SentRequest {
  Path run;
  training::Request request;
  uint64_t answers_from = 0;  // size of RUN/control.jsonl before it was sent
};

// An answer of the run.
struct SteeringAnswer {
  std::string line;  // of control.jsonl, a JSON object
  int64_t at_step = 0;
};

// A new request of this user.
training::Request make_request(training::Request::What what,
                               const std::vector<std::string>& assignments = {});

// ConfigError if `run` is not the folder of a run that is running, or belongs to another user.
SentRequest send_request(const Path& run, const training::Request& request);

// Waits until the run has answered; for `stop`, until it has also ended. `is_stopped`: the user no longer
// waits; the request is taken back if the run has not read it, and Interrupted is thrown. ConfigError if the
// run refuses the request, or has ended without an answer; WorldError if it ends without a clean save.
SteeringAnswer wait_for_answer(const SentRequest& sent, const std::function<bool()>& is_stopped);

}  // namespace strata::library
