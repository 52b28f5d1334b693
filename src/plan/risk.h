// Failures and their cost: how often a job stops, how much of its time is useful, how often to save.
//
// Times are in seconds. ETTR (effective training time ratio) is the time of steps that survive divided by the
// time since the job started, without waiting in a queue; for one job it is also the goodput.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/catalogue.h"

namespace strata::planning {

// Rates of failures and times of saving and restarting.
struct FailureModel {
  double mttf = 0.0;             // s between failures that lose the work since the last checkpoint
  double restart = 0.0;          // s from a failure to the first new step, u0
  double save = 0.0;             // s for which a checkpoint blocks the run, w
  double preemption_mttf = 0.0;  // s between announced preemptions, which save first; 0: none
  double preemption_wait = 0.0;  // s until the devices are back, without the restart
};

// MTTF = 1 / (nodes * failures per node and time).
double mttf_of_nodes(double nodes, double failures_per_node_day);

struct Mttf {
  double formula = 0.0;            // by nodes
  std::optional<double> measured;  // of whole jobs of 1/2 to 2 times the devices, scaled by 1/N
  std::string source;              // of seconds()
  double seconds() const { return measured.value_or(formula); }
};
// Jobs fail more often than their nodes predict (1024 devices of RSC: 7.9 h measured, 28.8 h by nodes), so a
// measured rate takes precedence. ConfigError if the cluster has no failure rate.
Mttf mttf_of(const ClusterSpec& cluster, int64_t devices);

// Best interval between checkpoints.
double young_interval(double save, double mttf);  // sqrt(2 δ M)
// Daly (2006), higher order: sqrt(2δM) [1 + 1/3 sqrt(δ/2M) + 1/9 (δ/2M)] - δ for δ < 2M, else M.
double daly_interval(double save, double mttf);
// With the time to detect and recover (arXiv 2410.18124, abstract): T_s + sqrt(2 (T_f + T_r) T_s + T_s²).
double availability_interval(double save, double mttf, double recovery);

// RSC (arXiv 2410.21680): (1 - λ (u0 + Δ/2)) / (1 + w/Δ), λ = 1/MTTF, never below 0. A first-order formula:
// at the best interval it is within 5 % up to about 16k devices, and too low beyond.
double ettr_linear(const FailureModel& failures, double interval);
// Exact for failures at a constant rate, including during saves and restarts (Daly 2006, section 3):
// Δ/M / ((exp((Δ + w)/M) - 1) exp(u0/M)), times the fraction of time outside preemptions. Prefer this one.
double ettr(const FailureModel& failures, double interval);
// The interval with the highest ettr(), at most `longest`.
double best_interval(const FailureModel& failures, double longest = 30.0 * 86400);

// Statistics of many simulations of one run.
struct SimulatedRuns {
  double ettr = 0.0;          // mean useful over mean elapsed
  double elapsed_mean = 0.0;  // s until `work` seconds of steps are done
  double elapsed_p10 = 0.0;
  double elapsed_p90 = 0.0;
  double failures_mean = 0.0;  // including preemptions
  double lost_mean = 0.0;      // s of repeated steps
  double saving_mean = 0.0;    // s
  double down_mean = 0.0;      // s of restarts and waits
};
// `work`: s of steps that the run needs. ConfigError if a run takes more than 1000 times that long or needs
// more than 10 million checkpoints.
SimulatedRuns simulate_runs(const FailureModel& failures, double interval, double work, int runs = 1000,
                            uint64_t seed = 1);

// Warm spares: the least s with P(Binomial(nodes, p) <= s) >= confidence (ByteRobust); p is the probability
// that a node is out.
int64_t spare_nodes(int64_t nodes, double out_probability, double confidence = 0.99);

// The fraction of a synchronous run that a straggler `slowdown` times as slow wastes: 1 - 1/slowdown.
double straggler_waste(double slowdown);

}  // namespace strata::planning
