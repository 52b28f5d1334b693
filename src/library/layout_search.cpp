#include "library/layout_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/suggest.h"
#include "config/choose.h"
#include "config/layout.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "library/explanation.h"
#include "library/plan_shape.h"
#include "library/run_inputs.h"
#include "library/simulation.h"
#include "models/model.h"
#include "plan/pipeline_walk.h"
#include "program/traffic.h"

namespace strata::library {
namespace {

using planning::gigabytes;
using planning::Layout;
using planning::PipelineSchedule;
using planning::RankedLayout;

constexpr size_t kShown = 10, kFound = 24;          // layouts in the answer, and of the search
constexpr size_t kConfirmed = 3;                    // layouts that are compiled
constexpr size_t kMostCompiled = 12;                // with those that turn out not to fit
constexpr int64_t kMostDevices = int64_t{1} << 17;  // that a budget or deadline may choose
constexpr int64_t kMostAsked = int64_t{1} << 20;    // parallel.* accepts no more

program::Recompute recompute_key(planning::Recompute recompute) {
  if (recompute == planning::Recompute::kSelective) return program::Recompute::kSelective;
  if (recompute == planning::Recompute::kFull) return program::Recompute::kFull;
  return program::Recompute::kNone;
}

// Bytes that a rank sends in a step of training, by axis; of each axis the most of any stage.
planning::ProgramTraffic sent_of(const config::RunPlan& plan) {
  planning::ProgramTraffic most;
  for (const Programs& set : stages_of(plan)) {
    planning::ProgramTraffic one;
    for (const program::AxisTraffic& axis : program::traffic_of(set->programs.front(), set->options)) {
      double& sent = axis.axis.starts_with("experts") ? one.expert
                     : axis.axis == "tensor"          ? one.tensor
                     : axis.axis == "context"         ? one.context
                     : axis.axis == "pipeline"        ? one.pipeline
                                                      : one.data;
      sent += static_cast<double>(axis.sent_bytes);
    }
    for (double planning::ProgramTraffic::*axis :
         {&planning::ProgramTraffic::data, &planning::ProgramTraffic::tensor,
          &planning::ProgramTraffic::context, &planning::ProgramTraffic::pipeline,
          &planning::ProgramTraffic::expert})
      most.*axis = std::max(most.*axis, one.*axis);
  }
  return most;
}

}  // namespace

LayoutSearch::LayoutSearch(const LayoutRequest& request) : profiles_(planning::builtin_profiles()) {
  const int limits = (request.gpus ? 1 : 0) + (request.budget ? 1 : 0) + (request.deadline ? 1 : 0);
  if (limits > 1) {
    throw ConfigError(
        "[strata plan] found {} together with {}, expected one of --gpus, --budget and --deadline: the number of "
        "devices, or what chooses it",
        request.gpus ? "--gpus" : "--budget", request.gpus && request.budget ? "--budget" : "--deadline");
  }
  if (request.gpus && *request.gpus > kMostAsked) {
    throw ConfigError("[--gpus] found {}, expected at most {}, the most ranks of a run", *request.gpus,
                      kMostAsked);
  }
  if (request.cluster.empty() && (request.budget || request.deadline)) {
    throw ConfigError(
        "[{}] found without --cluster, expected the devices to choose, such as --cluster h100-sxm",
        request.budget ? "--budget" : "--deadline");
  }
  read_model(request);
  read_machine(request);
  job_.profiles = &profiles_;
  job_.stack = &profiles_.stack("strata");
  job_.fixed = fixed();
  choose_devices(request);
  for (;;) {
    found_ = search(job_.devices, kFound);
    if (found_.best.empty()) nothing_fits(found_);
    confirm();
    // Compiled programs may be slower than the formulas that chose the number of devices.
    const double seconds = layouts_.front().seconds();
    const bool dear = request.budget && *cost_of(seconds, job_.devices) > *request.budget;
    const bool late = request.deadline && run_seconds(seconds) > *request.deadline;
    if (!dear && !late) break;
    const int64_t next = dear ? job_.devices / 2 : job_.devices * 2;
    if (next < hosts_of_ || next > kMostDevices) {
      throw ConfigError("[{}] found {}, but the compiled layouts need {} on {} devices; expected more",
                        dear ? "--budget" : "--deadline",
                        dear ? fmt::format("${:.0f}", *request.budget) : human_duration(*request.deadline),
                        dear ? fmt::format("${:.0f}", *cost_of(seconds, job_.devices))
                             : human_duration(run_seconds(seconds)),
                        job_.devices);
    }
    job_.devices = next;
  }
  more_ = planning::sensitivity(job_, found_.best.front());
  if (request.hypothetical) hypotheses_ = planning::hypotheses(job_, catalogue_);
}

planning::SearchResult LayoutSearch::search(int64_t devices, size_t keep) {
  planning::SearchRequest job = job_;
  job.devices = devices;
  job.keep = keep;
  return planning::search_layouts(job);
}

double LayoutSearch::run_seconds(double step) const {
  return step * tokens_ / static_cast<double>(job_.batch * job_.sequence);
}

std::optional<double> LayoutSearch::cost_of(double step, int64_t devices) const {
  if (!price_) return std::nullopt;
  return run_seconds(step) / 3600 * static_cast<double>(devices) * price_->low;
}

void LayoutSearch::choose_devices(const LayoutRequest& request) {
  if (here_) return;
  if (request.gpus) {
    job_.devices = *request.gpus;
    return;
  }
  if (request.budget && !price_)
    throw ConfigError("[--budget] found no price of {}, expected one: add [[price]] to a cluster file",
                      job_.cluster.chip.name);
  struct Choice {
    int64_t devices = 0;
    double seconds = 0, cost = 0;
  };
  std::optional<Choice> chosen, nearest;
  planning::SearchResult last;
  for (int64_t devices = hosts_of_; devices <= kMostDevices; devices *= 2) {
    planning::SearchResult found;
    try {
      found = search(devices, 1);
    } catch (const ConfigError&) {
      if (devices == hosts_of_) throw;
      break;  // more devices than the batch has sequences for
    }
    if (found.best.empty()) {
      last = std::move(found);
      continue;
    }
    const double step = found.best.front().seconds;
    const Choice one{devices, run_seconds(step), cost_of(step, devices).value_or(0)};
    if (!request.budget && !request.deadline) {
      job_.devices = devices;
      assumptions_.push_back(
          fmt::format("{} devices, the fewest hosts that hold it; --gpus sets them", devices));
      return;
    }
    const bool keeps = request.budget ? one.cost <= *request.budget : one.seconds <= *request.deadline;
    if (keeps && (!chosen || (request.budget ? one.seconds < chosen->seconds : one.cost < chosen->cost)))
      chosen = one;
    if (!nearest || (request.budget ? one.cost < nearest->cost : one.seconds < nearest->seconds))
      nearest = one;
    // Without prices the fewest devices that are fast enough.
    if (chosen && request.deadline && !price_) break;
  }
  if (!nearest) nothing_fits(last);
  if (!chosen) {
    if (request.budget) {
      throw ConfigError(
          "[--budget] found ${:.0f}, but {} tokens cost at least ${:.0f}: {} devices for {}; expected more money or "
          "fewer tokens",
          *request.budget, human_count(tokens_), nearest->cost, nearest->devices,
          human_duration(nearest->seconds));
    }
    throw ConfigError(
        "[--deadline] found {}, but the run takes at least {}, on {} devices; expected more time, fewer tokens or a "
        "larger batch",
        human_duration(*request.deadline), human_duration(nearest->seconds), nearest->devices);
  }
  job_.devices = chosen->devices;
}

void LayoutSearch::nothing_fits(const planning::SearchResult& found) {
  std::string remedy;
  for (int64_t devices = 2 * job_.devices; !here_ && devices <= kMostDevices; devices *= 2) {
    try {
      const planning::SearchResult more = search(devices, 1);
      if (more.best.empty()) continue;
      remedy = fmt::format("; it fits on {} devices", devices);
    } catch (const ConfigError&) {
      // The batch has too few sequences for more devices.
    }
    break;
  }
  throw ConfigError(
      "[strata plan] {} ({} parameters) fits on {} device{} of {} in no layout: the least takes {} of {} a device "
      "({}){}; expected more devices, more memory or a smaller model",
      model_name_, human_count(parameters_), job_.devices, job_.devices == 1 ? "" : "s",
      job_.cluster.chip.name, gigabytes(found.least_memory), gigabytes(found.memory_limit),
      found.least_layout, remedy);
}

config::RunConfig LayoutSearch::with_layout(const Layout& layout) const {
  config::RunConfig out = asked_;
  config::ParallelTable& keys = out.parallel;
  const config::ParallelTable usual;
  const bool alone = layout.devices() == 1;
  const int64_t shards = layout.shards;
  const int64_t inner = layout.context * (layout.expert_tensor > 1 ? 1 : layout.tensor);
  const bool sharded = layout.zero_stage > 0 || layout.expert > inner;
  keys.replicate = sharded ? layout.data / shards : layout.data;
  keys.shard = sharded ? shards : alone ? usual.shard : 1;
  keys.zero = sharded && shards > 1 ? config::Auto<int64_t>(layout.zero_stage) : usual.zero;
  keys.prefetch = layout.zero_stage >= 3 && sharded && shards > 1 ? config::Auto<int64_t>(1) : usual.prefetch;
  if (layout.zero_stage < 3) keys.reshard_after_forward = usual.reshard_after_forward;
  keys.tensor = layout.tensor;
  if (layout.tensor == 1) keys.sequence = usual.sequence;
  keys.overlap_chunks = layout.overlap_chunks;
  keys.context = layout.context;
  if (layout.context == 1) keys.context_kind = usual.context_kind;
  keys.pipeline = layout.pipeline;
  keys.stage_layers = usual.stage_layers;
  keys.schedule = layout.pipeline > 1 ? std::string(planning::schedule_name(layout)) : usual.schedule;
  keys.virtual_stages = layout.pipeline > 1 && !planning::is_folded(layout.schedule) ? layout.virtual_stages
                                                                                     : usual.virtual_stages;
  keys.expert = layout.expert;
  keys.expert_tensor = layout.expert_tensor;
  if (layout.expert == 1) {
    keys.dispatch = usual.dispatch;
    keys.expert_capacity = usual.expert_capacity;
  }
  out.training.micro_batch_size = layout.micro_batch;
  out.memory.recompute = recompute_key(layout.recompute);
  // Samples need whole models.
  if (layout.pipeline > 1) out.eval.sample_tokens = 0;
  return out;
}

CompiledLayout LayoutSearch::compile(const PlannedLayout& layout) const {
  config::RunConfig config = layout.config;
  const int64_t ranks = job_.devices;
  if (here_) {
    // The ranks share this machine.
    const config::MachineShare share =
        config::share_of_machine({.ranks = ranks, .local_ranks = static_cast<int>(ranks)});
    if (config.device.threads.is_word()) config.device.threads = std::max<int64_t>(1, share.processors);
    if (config.memory.budget.is_word())
      config.memory.budget = config::Bytes{static_cast<int64_t>(found_.memory_limit)};
  }
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(config, hooks);
  const std::vector<int32_t> places = places_from(config, ranks, 0);
  const auto plan =
      here_ ? plan_as_trained(config, ranks, places) : plan_on(config, ranks, places, job_.cluster);
  auto simulation = std::make_shared<const Simulation>(plan);
  const double seconds = simulation->seconds();
  const int64_t bytes = simulation->fullest_bytes();
  return {seconds, bytes, sent_of(*plan), std::move(simulation)};
}

// Compiles the fastest ones until the first kConfirmed are confirmed; those that the compiler rejects or that do not
// fit are dropped.
void LayoutSearch::confirm() {
  layouts_.clear();
  rejected_.clear();
  for (RankedLayout& one : found_.best) layouts_.push_back({one, std::nullopt, with_layout(one.layout)});
  std::string first_error;
  for (size_t compiled = 0; compiled < kMostCompiled; ++compiled) {
    const auto open = std::find_if(
        layouts_.begin(), layouts_.begin() + static_cast<int64_t>(std::min(kConfirmed, layouts_.size())),
        [](const PlannedLayout& one) { return !one.compiled; });
    if (open == layouts_.end() || open == layouts_.begin() + static_cast<int64_t>(kConfirmed)) break;
    std::string reason;
    try {
      CompiledLayout found = compile(*open);
      const double limit = found_.memory_limit;
      if (static_cast<double>(found.bytes) <= limit) {
        open->compiled = std::move(found);
      } else {
        reason = fmt::format("compiled it needs {:.1f} GB of {:.1f} GB, {:.1f} GB by formula",
                             static_cast<double>(found.bytes) / 1e9, limit / 1e9,
                             open->formula.memory.total() / 1e9);
      }
    } catch (const Error& error) {
      reason = error.what();
    }
    if (!reason.empty()) {
      if (first_error.empty()) first_error = reason;
      rejected_.push_back({layout_in_words(open->formula.layout), reason, 0});
      // Its relatives would not fit either: the same schedule and recomputation, with no less memory by formula.
      const RankedLayout failed = open->formula;
      std::erase_if(layouts_, [&](const PlannedLayout& one) {
        const Layout& layout = one.formula.layout;
        return !one.compiled && (layout.pipeline > 1) == (failed.layout.pipeline > 1) &&
               layout.schedule == failed.layout.schedule && layout.recompute == failed.layout.recompute &&
               one.formula.memory.total() >= failed.memory.total();
      });
      continue;
    }
    std::stable_sort(layouts_.begin(), layouts_.end(), [](const PlannedLayout& a, const PlannedLayout& b) {
      return a.seconds() < b.seconds();
    });
  }
  if (layouts_.empty()) {
    throw ConfigError("[strata plan] the compiler accepts none of the {} best layouts; the first: {}",
                      found_.best.size(), first_error);
  }
  // A layout that was not compiled is never the best one.
  std::stable_partition(layouts_.begin(), layouts_.end(),
                        [](const PlannedLayout& one) { return one.compiled.has_value(); });
  if (layouts_.size() > kShown)
    layouts_.erase(layouts_.begin() + static_cast<int64_t>(kShown), layouts_.end());
  std::erase_if(found_.best, [&](const RankedLayout& one) {
    return std::none_of(layouts_.begin(), layouts_.end(), [&](const PlannedLayout& kept) {
      return layout_in_words(kept.formula.layout) == layout_in_words(one.layout);
    });
  });
}

void LayoutSearch::try_layouts(size_t count, const Trial& run) {
  if (!here_)
    throw ConfigError("[--try] found with --cluster, expected this machine: only it can run a few steps");
  const auto end = layouts_.begin() + static_cast<int64_t>(std::min(count, layouts_.size()));
  for (auto one = layouts_.begin(); one != end; ++one)
    one->measured = run(one->config, job_.devices, layout_in_words(one->formula.layout));
  std::stable_sort(layouts_.begin(), end,
                   [](const PlannedLayout& a, const PlannedLayout& b) { return *a.measured < *b.measured; });
}

std::string LayoutSearch::run_toml() const {
  return config::short_toml(
      layouts_.front().config,
      fmt::format("Layout of {} devices ({}), chosen by strata plan.", job_.devices, job_.cluster.name));
}

}  // namespace strata::library
