// The first failure of an attempt, from the output of the launcher and the ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::launch {

// Empty fields: not found.
struct FailureText {
  std::optional<int64_t> missing_rank;    // that other ranks found stopped or gone, or waited for
  std::optional<int64_t> ended_rank;      // whose end the launcher noticed first
  std::optional<int64_t> reporting_rank;  // whose error ended the job
  std::string doing;                      // the missing rank's last action: "step 17, F0"
  std::string collective;                 // in which it was missed, or that it made last: "gather of layer 2"

  std::optional<int64_t> first_rank() const;
};

// Recognizes the watchdog's reports and errors of ranks (comm/flight_recorder.h), and what Open MPI's mpirun, MPICH's
// mpiexec and srun print about the process that ended first.
FailureText failure_in(std::string_view output);

// The phase of a rank's last action, under the names of train/rank_board.h; empty: unknown.
std::string phase_of_action(std::string_view doing);

}  // namespace strata::launch
