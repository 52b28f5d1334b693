#include "library/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "config/layout.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "library/plan_shape.h"
#include "plan/stack_profile.h"

namespace strata::library {
namespace {

using Json = nlohmann::ordered_json;
using graph::Axis;

// This program has no published runs: it is as uncertain as a stack that was left out of the fit of planning formulas.
// On this machine the width is the worst error that `strata bench simulate` allows.
double interval_width(const hardware::Machine& machine) {
  constexpr double kHere = 0.25;
  if (machine.chip.empty()) return kHere;
  const planning::Profiles profiles = planning::builtin_profiles();
  return profiles.interval_width(nullptr, profiles.family_of(machine.chip));
}

// Bytes of a rank by category.
Json memory_json(const program::ProgramSet& set) {
  Json out = {
      {"weights", int64_t{0}}, {"gradients", int64_t{0}}, {"optimizer", int64_t{0}}, {"copies", int64_t{0}}};
  int64_t rest = set.arena_bytes;
  const auto add = [&](const char* name, int64_t bytes) {
    out[name] = out[name].get<int64_t>() + bytes;
    rest -= bytes;
  };
  for (const program::Persistent& one : set.persistent) {
    if (one.role == graph::Role::kParameter) add("weights", one.bytes);
    if (one.role == graph::Role::kGradient) add("gradients", one.bytes);
    if (one.role == graph::Role::kState) add("optimizer", one.bytes);
    if (one.role == graph::Role::kEncoded) add("copies", one.bytes);
  }
  out["batches"] = set.batch_bytes;
  out["activations"] = rest - set.batch_bytes;
  return out;
}

std::string seconds_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.4g} ms", 1e3 * seconds);
  return seconds < 60 ? fmt::format("{:.4g} s", seconds) : human_duration(seconds);
}

}  // namespace

Simulation::Simulation(std::shared_ptr<const config::RunPlan> plan)
    : plan_(std::move(plan)),
      places_(stages_of(*plan_)),
      machine_(machine_of(*plan_)),
      price_(program::price_step(places_, config::kTrainProgram, machine_)),
      width_(interval_width(machine_)) {}

int64_t Simulation::fullest_bytes() const {
  int64_t most = 0;
  for (const Programs& place : places_) most = std::max(most, place->arena_bytes);
  return most;
}

double Simulation::low() const {
  return price_.seconds * std::exp(-width_);
}

double Simulation::high() const {
  return price_.seconds * std::exp(width_);
}

int64_t Simulation::rank_of(int32_t place) const {
  return place * (config::mesh_of(plan_->config).ranks() / static_cast<int64_t>(places_.size()));
}

// Of the rank that waits most.
Json Simulation::exposed() const {
  Json out = Json::object();
  const graph::Mesh mesh = config::mesh_of(plan_->config);
  double experts = 0;
  for (const Axis axis : graph::kAllAxes) {
    double most = 0;
    for (const program::PricedRank& rank : price_.ranks) most = std::max(most, rank.exposed[axis]);
    if (mesh.size(axis) > 1) out[name_of(axis)] = most;
  }
  for (const program::PricedRank& rank : price_.ranks) experts = std::max(experts, rank.exposed_experts);
  if (plan_->config.parallel.expert > 1) out["expert"] = experts;
  return out;
}

Json Simulation::mfu() const {
  Json out = Json::object();
  const config::RunConfig& config = plan_->config;
  const auto precision = hardware::precision_of(name_of(config::activation_dtype(config)));
  const double peak = machine_.device.peak_flops[precision];
  if (peak <= 0) return out;
  const planning::ModelShape shape = shape_of(plan_->model);
  const int64_t length = config.training.sequence_length;
  const double tokens_per_rank = static_cast<double>(config.training.global_batch_size * length) /
                                 static_cast<double>(config::mesh_of(config).ranks());
  for (const planning::FlopConvention convention : planning::flop_conventions())
    out[std::string(to_string(convention))] =
        flops_per_token(shape, length, convention) * tokens_per_rank / price_.seconds / peak;
  return out;
}

std::vector<Simulation::Link> Simulation::critical_path() const {
  std::vector<Link> path;
  size_t place = 0;
  for (size_t i = 0; i < price_.ranks.size(); ++i)
    if (price_.ranks[i].end > price_.ranks[place].end) place = i;
  const auto what = [&](size_t at, size_t action) {
    return str(places_[at]->programs[config::kTrainProgram].script[action]);
  };
  for (size_t action = price_.ranks[place].actions.size(); action > 0;) {
    const program::PricedRank::Span& span = price_.ranks[place].actions[--action];
    path.push_back({static_cast<int32_t>(place), what(place, action), span.begin, span.end});
    if (span.sender < 0) continue;
    // It has waited for a message, so the path goes on at its sender.
    const auto sender = static_cast<size_t>(span.sender);
    const double sent = price_.ranks[sender].actions[span.sent_by].end;
    path.push_back({span.sender, "message", sent, span.begin});
    place = sender;
    action = span.sent_by + 1;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Json Simulation::json() const {
  const config::RunConfig& config = plan_->config;
  const double tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  Json out = {{"step_time_s", price_.seconds},
              {"step_time_low_s", low()},
              {"step_time_high_s", high()},
              {"tokens_per_s", tokens / price_.seconds},
              {"bubble", price_.bubble_share()},
              {"exposed", exposed()},
              {"fits", !plan_->tight_place},
              {"ranks", Json::array()},
              {"mfu", mfu()},
              {"critical_path", Json::array()}};
  for (const program::PricedRank& rank : price_.ranks) {
    const program::ProgramSet& set = *places_[static_cast<size_t>(rank.place)];
    out["ranks"].push_back({{"rank", rank_of(rank.place)},
                            {"memory_bytes", set.arena_bytes},
                            {"memory", memory_json(set)},
                            {"computing_s", rank.computing},
                            {"communicating_s", rank.communicating},
                            {"bubble_s", rank.bubble},
                            {"end_s", rank.end}});
  }
  for (const Link& link : critical_path())
    out["critical_path"].push_back(
        {{"rank", rank_of(link.place)}, {"what", link.what}, {"begin_s", link.begin}, {"end_s", link.end}});
  return out;
}

std::string Simulation::text() const {
  const Json all = json();
  const auto number = [&](const char* key) { return all[key].get<double>(); };
  std::string out = machine_text(machine_);
  out += fmt::format("step      {}, 90 % interval {} to {}; {} tokens/s\n", seconds_text(price_.seconds),
                     seconds_text(number("step_time_low_s")), seconds_text(number("step_time_high_s")),
                     human_count(number("tokens_per_s")));
  const auto percent = [&](double seconds) { return 100 * seconds / price_.seconds; };
  out += fmt::format("bubble    {:.1f} % of all ranks' time\n", 100 * price_.bubble_share());
  for (const auto& [axis, seconds] : all["exposed"].items())
    out += fmt::format("exposed   {:.1f} % of the step waits for the {} axis\n",
                       percent(seconds.get<double>()), axis);
  for (const auto& [convention, value] : all["mfu"].items())
    out += fmt::format("mfu       {:.1f} % by {}\n", 100 * value.get<double>(), convention);
  int64_t budget = (*plan_->config.memory.budget).count, most = 0;
  for (const Json& rank : all["ranks"]) most = std::max(most, rank["memory_bytes"].get<int64_t>());
  out += fmt::format("memory    {} of {} on the fullest rank{}\n", human_bytes(static_cast<double>(most)),
                     human_bytes(static_cast<double>(budget)), most > budget ? ", which does not fit" : "");
  out += "\nrank      memory     computes   waits for other places\n";
  for (const Json& rank : all["ranks"])
    out += fmt::format("{:<9} {:<10} {:>7.1f} %  {:>7.1f} %\n", rank["rank"].get<int64_t>(),
                       human_bytes(rank["memory_bytes"].get<double>()),
                       percent(rank["computing_s"].get<double>()), percent(rank["bubble_s"].get<double>()));
  return out;
}

std::vector<observe::TraceEvent> Simulation::timeline(std::vector<std::string>& threads) const {
  constexpr int64_t kQueues = 3;
  struct Recorder final : program::PriceObserver {
    const std::vector<Programs>* places = nullptr;
    std::vector<observe::TraceEvent> events;
    void work(int32_t place, Queue queue, size_t action, size_t index, double begin, double end) override {
      const program::Program& program =
          (*places)[static_cast<size_t>(place)]->programs[config::kTrainProgram];
      const program::Action& at = program.script[action];
      const std::string name = queue == Queue::kMessages
                                   ? fmt::format("message to place {}", program.messages[index].peer)
                                   : std::string(program.node_of(program.list_of(at)[index]).op->name);
      events.push_back(
          {name, str(at), 1e6 * begin, 1e6 * (end - begin), kQueues * place + static_cast<int64_t>(queue)});
    }
  } recorder;
  recorder.places = &places_;
  program::price_step(places_, config::kTrainProgram, machine_, &recorder);
  for (size_t place = 0; place < places_.size(); ++place) {
    for (const char* queue : {"compute", "communication", "messages"})
      threads.push_back(fmt::format("rank {} {}", rank_of(static_cast<int32_t>(place)), queue));
  }
  return std::move(recorder.events);
}

}  // namespace strata::library
