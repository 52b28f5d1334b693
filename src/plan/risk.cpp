#include "plan/risk.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "plan/laws.h"

namespace strata::planning {
namespace {

// Random draws of one simulated run.
class Draws {
 public:
  Draws(uint64_t seed, uint32_t run) : key_{seed, run} {}
  // Time to the next event at a constant rate; infinite unless `mean` is positive and finite.
  double exponential(double mean) {
    if (!(mean > 0) || !std::isfinite(mean)) return INFINITY;
    const auto bits = philox(key_, counter_++);
    const double uniform =
        (static_cast<double>(bits[0]) * 0x1p32 + static_cast<double>(bits[1]) + 0.5) * 0x1p-64;
    return -mean * std::log(uniform);
  }

 private:
  RandomKey key_;
  uint64_t counter_ = 0;
};

struct RunTimes {
  double elapsed = 0.0, lost = 0.0, saving = 0.0, down = 0.0, failures = 0.0;
};

// The clock of one simulated run.
class Job {
 public:
  // `longest`: s after which the simulation stops with an error.
  Job(const FailureModel& model, Draws draws, double longest)
      : model_(model), draws_(draws), longest_(longest) {
    failure_ = draws_.exponential(model.mttf);
    preemption_ = draws_.exponential(model.preemption_mttf);
  }

  RunTimes run(double interval, double work) {
    for (double done = 0.0; done < work;) {
      const double steps = std::min(interval, work - done);
      // The run ends with the last interval: no checkpoint blocks it.
      done += interval_with_save(steps, steps < work - done ? model_.save : 0.0);
    }
    return times_;
  }

 private:
  // `steps` s of work, then a checkpoint. Returns the work that survives: all of it if nothing fails.
  double interval_with_save(double steps, double save) {
    double left = steps, kept = 0.0;
    while (left > 0) {
      if (left <= std::min(failure_, preemption_)) {
        pass(left);
        left = 0;
      } else if (failure_ <= preemption_) {
        times_.lost += steps - left + failure_ - kept;
        pass(failure_);
        fail();
        return kept;
      } else {  // preemption: save, wait, resume
        left -= preemption_;
        pass(preemption_);
        times_.failures += 1;
        preemption_ = INFINITY;
        const bool saved = down(model_.save, times_.saving);
        if (saved) down(model_.preemption_wait + model_.restart, times_.down);
        preemption_ = draws_.exponential(model_.preemption_mttf);
        if (!saved) {
          times_.lost += steps - left - kept;
          return kept;
        }
        kept = steps - left;
      }
    }
    if (save <= failure_) {
      times_.saving += save;
      pass(save);
      return steps;
    }
    times_.lost += steps - kept;
    times_.saving += failure_;
    pass(failure_);
    fail();
    return kept;
  }

  // A pause; false if a failure ended it.
  bool down(double duration, double& account) {
    if (duration <= failure_) {
      account += duration;
      pass(duration);
      return true;
    }
    account += failure_;
    pass(failure_);
    fail();
    return false;
  }

  void fail() {
    times_.failures += 1;
    failure_ = draws_.exponential(model_.mttf);
    // No preemptions while the job is down: its devices do no work.
    const double kept = std::exchange(preemption_, INFINITY);
    while (model_.restart > failure_) {
      times_.failures += 1;
      times_.down += failure_;
      pass(failure_);
      failure_ = draws_.exponential(model_.mttf);
    }
    times_.down += model_.restart;
    pass(model_.restart);
    preemption_ = kept;
  }

  void pass(double time) {
    times_.elapsed += time;
    if (times_.elapsed > longest_) {
      throw ConfigError(
          "[failures] found a run that does not finish within {:.3g} h, expected one that does; save more often "
          "or restart faster",
          longest_ / 3600);
    }
    failure_ -= time;
    preemption_ -= time;
  }

  const FailureModel& model_;
  Draws draws_;
  double longest_;
  RunTimes times_;
  double failure_ = INFINITY;  // s from now
  double preemption_ = INFINITY;
};

}  // namespace

double mttf_of_nodes(double nodes, double failures_per_node_day) {
  return 86400 / (nodes * failures_per_node_day);
}

Mttf mttf_of(const ClusterSpec& cluster, int64_t devices) {
  const int64_t nodes = (devices + cluster.devices_per_host - 1) / cluster.devices_per_host;
  Mttf out;
  const Figure& rate = cluster.failures_per_node_day;
  out.formula =
      rate.known() && rate.value > 0 ? mttf_of_nodes(static_cast<double>(nodes), rate.value) : INFINITY;
  out.source = rate.source;
  double nearest = 2.0;
  for (const JobMttf& job : cluster.measured_mttf) {
    const double ratio = static_cast<double>(job.devices) / static_cast<double>(devices);
    const double distance = std::max(ratio, 1 / ratio);
    if (distance > nearest) continue;
    nearest = distance;
    out.measured = job.seconds * ratio;
    out.source = job.source;
  }
  if (!rate.known() && !out.measured) {
    throw ConfigError(
        "[cluster.{}.failures_per_node_day] missing, expected failures per host and day such as 0.0065",
        cluster.name);
  }
  return out;
}

double young_interval(double save, double mttf) {
  return std::sqrt(2 * save * mttf);
}

double daly_interval(double save, double mttf) {
  if (save >= 2 * mttf) return mttf;
  const double ratio = save / (2 * mttf);
  return std::sqrt(2 * save * mttf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save;
}

double availability_interval(double save, double mttf, double recovery) {
  return save + std::sqrt(2 * (mttf + recovery) * save + save * save);
}

double ettr_linear(const FailureModel& failures, double interval) {
  const double useful = 1 - (failures.restart + interval / 2) / failures.mttf;
  return std::max(0.0, useful) / (1 + failures.save / interval);
}

double ettr(const FailureModel& failures, double interval) {
  double ratio = interval / (interval + failures.save);
  if (failures.mttf > 0 && std::isfinite(failures.mttf)) {
    ratio =
        interval / failures.mttf /
        (std::expm1((interval + failures.save) / failures.mttf) * std::exp(failures.restart / failures.mttf));
  }
  if (failures.preemption_mttf > 0) {
    // A preemption costs a save, a wait and a restart once per preemption_mttf of steps.
    const double pause = failures.save + failures.preemption_wait + failures.restart;
    ratio /= 1 + pause / failures.preemption_mttf;
  }
  return ratio;
}

double best_interval(const FailureModel& failures, double longest) {
  const double least = std::max(failures.save * 1e-3, 1e-3);
  return argmin_log(least, std::max(longest, 10 * least),
                    [&](double interval) { return -ettr(failures, interval); });
}

SimulatedRuns simulate_runs(const FailureModel& failures, double interval, double work, int runs,
                            uint64_t seed) {
  if (!(interval > 0 && work > 0 && work / interval < 1e7) || runs < 1) {
    throw ConfigError(
        "[failures] found {} s of steps with a checkpoint every {} s, expected both above 0 and at most 10 "
        "million checkpoints",
        work, interval);
  }
  SimulatedRuns out;
  std::vector<double> elapsed;
  for (int run = 0; run < runs; ++run) {
    const RunTimes times =
        Job(failures, Draws(seed, static_cast<uint32_t>(run)), 1000 * work).run(interval, work);
    elapsed.push_back(times.elapsed);
    out.elapsed_mean += times.elapsed / runs;
    out.failures_mean += times.failures / runs;
    out.lost_mean += times.lost / runs;
    out.saving_mean += times.saving / runs;
    out.down_mean += times.down / runs;
  }
  out.ettr = work / out.elapsed_mean;
  std::sort(elapsed.begin(), elapsed.end());
  out.elapsed_p10 = elapsed[elapsed.size() / 10];
  out.elapsed_p90 = elapsed[elapsed.size() * 9 / 10];
  return out;
}

int64_t spare_nodes(int64_t nodes, double out_probability, double confidence) {
  if (out_probability <= 0) return 0;
  if (out_probability >= 1) return nodes;
  // The logarithm of the probability of exactly s, so that thousands of nodes do not underflow.
  double log_chance = static_cast<double>(nodes) * std::log1p(-out_probability), sum = std::exp(log_chance);
  int64_t spares = 0;
  while (sum < confidence && spares < nodes) {
    log_chance += std::log(static_cast<double>(nodes - spares) / static_cast<double>(spares + 1)) +
                  std::log(out_probability) - std::log1p(-out_probability);
    sum += std::exp(log_chance);
    ++spares;
  }
  return spares;
}

double straggler_waste(double slowdown) {
  return 1 - 1 / slowdown;
}

}  // namespace strata::planning
