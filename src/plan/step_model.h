// Time of a training step by formulas: a roofline for the matmuls, attention and element-wise operations of a
// stage, what its communication leaves exposed, the pipeline's bubble, the data axis, the optimizer, and a
// fixed cost (reference: planning.md §3 to §6).
#pragma once

#include <string>

#include "plan/catalogue.h"
#include "plan/row_job.h"
#include "plan/stack_profile.h"

namespace strata::planning {

// Parameters of one pipeline rank, by how they are sharded.
struct StageParameters {
  double dense = 0;    // all but routed experts
  double experts = 0;  // routed experts of this rank
};
// Of the stage that holds `layers` layers and `ends` of embedding and head (0, 1 or 2).
StageParameters stage_parameters(const ModelShape& shape, const Layout& layout, double layers, double ends);

// Seconds on the most loaded pipeline rank.
struct StepTime {
  // Computation of all micro-batches.
  double matmuls = 0;  // of the layers, forward and backward
  double attention = 0;
  double elementwise = 0;
  double loss = 0;  // the head's matmul and the loss, on the last stage
  double recompute = 0;
  // Communication that is not hidden, by axis.
  double tensor = 0;
  double context = 0;
  double expert = 0;
  double pipeline = 0;
  double data = 0;
  double bubble = 0;
  double optimizer = 0;
  double fixed = 0;

  double compute() const { return matmuls + attention + elementwise + loss + recompute; }
  double exposed() const { return tensor + context + expert + pipeline + data; }
  double total() const { return compute() + exposed() + bubble + optimizer + fixed; }
};

// ConfigError if the chip does not have the job's dtype. A chip without a family has the catalogue's
// fractions and Hopper's attention.
StepTime step_time(const TrainingJob& job, const StackProfile& stack, const Profiles& profiles,
                   const ClusterSpec& cluster);

}  // namespace strata::planning
