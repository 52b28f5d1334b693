// Prices rows of published runs: step time with an interval, throughput, and memory of the fullest device.
//
// Nothing is keyed by a row's id, and no result of a row is read: pricing sees a PublishedRun without
// tokens_per_s, tokens_per_s_per_gpu, tflops_per_gpu, mfu, step_time_s, memory_GB, notes, source and id.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/memory_model.h"
#include "plan/row_job.h"
#include "plan/step_model.h"

namespace strata::planning {

struct PricedRun {
  std::string id;
  std::string skipped;  // why there are no values; empty: there are
  StepTime step;
  double step_low = 0;  // s, 90 % interval
  double step_high = 0;
  double tokens_per_s_per_gpu = 0;
  MemoryUse memory;
  // In the unit of the stack's own logs, which its rows publish as GB: torchtitan's are GiB.
  double memory_gb = 0;
  std::vector<std::string> assumptions;
};

class RunPricer {
 public:
  RunPricer(Catalogue catalogue, Profiles profiles, std::vector<Architecture> architectures);

  PricedRun price(const PublishedRun& run) const;
  const Profiles& profiles() const { return profiles_; }
  RunPricer with(Profiles profiles) const;

  // The row as a job on a cluster, for fits that price it many times. `skipped` if there is none.
  struct Located {
    RowJob row;
    const StackProfile* stack = nullptr;
    const ClusterSpec* cluster = nullptr;
  };
  Located locate(const PublishedRun& run) const;

 private:
  void recompute_to_fit(Located& located) const;

  Catalogue catalogue_;
  Profiles profiles_;
  std::vector<Architecture> architectures_;
};

RunPricer builtin_pricer();

// {"id", "step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s_per_gpu", "memory_GB",
// "skipped"}: numbers or null, and null or the reason. One line.
std::string to_json(const PricedRun& run);

// Seconds of the step that the row publishes: published_step_seconds(), else from tflops_per_gpu or mfu by
// the convention of its flags; nothing if the flags doubt the figure.
std::optional<double> published_seconds(const PublishedRun& run, const RunPricer::Located& located);

}  // namespace strata::planning
