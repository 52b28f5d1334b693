#include "train/reporter.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "observe/plot.h"
#include "observe/run_history.h"
#include "program/memory_report.h"
#include "train/snapshots.h"

namespace strata::training {
namespace {

constexpr double kNotKnown = observe::StepReport::kUnknown;

// With several ranks: the minimum and maximum of each value, and the rank with the longest step.
void add_spread(observe::MetricFields& fields, const std::vector<RankReport>& ranks) {
  if (ranks.size() < 2) return;
  const auto add = [&](const char* name, double RankReport::*value, double unit) {
    const auto [least, most] =
        std::minmax_element(ranks.begin(), ranks.end(),
                            [&](const RankReport& a, const RankReport& b) { return a.*value < b.*value; });
    fields.push_back({fmt::format("{}_min", name), (*least).*value * unit});
    fields.push_back({fmt::format("{}_max", name), (*most).*value * unit});
    return most - ranks.begin();
  };
  const auto slowest = add("step_ms", &RankReport::compute_seconds, 1e3);
  add("data_wait_ms", &RankReport::data_wait_seconds, 1e3);
  add("memory_bytes", &RankReport::memory_bytes, 1);
  fields.push_back({"slowest_rank", static_cast<int64_t>(slowest)});
}

std::vector<observe::RankFigures> figures_of(const std::vector<RankReport>& ranks) {
  std::vector<observe::RankFigures> figures;
  for (const RankReport& one : ranks)
    figures.push_back({one.compute_seconds * 1e3, one.data_wait_seconds * 1e3, one.memory_bytes});
  return figures;
}

observe::Progress make_progress(int64_t total_steps, const RunObserver& observer) {
  if (!observer.log) return {total_steps, observe::terminal_style()};
  return {total_steps, {}, [log = observer.log](std::string_view lines) {
            if (lines.ends_with('\n')) lines.remove_suffix(1);
            log(LogLevel::kInfo, lines);
          }};
}

}  // namespace

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  if (statm >> total >> resident) return resident * ::sysconf(_SC_PAGESIZE);
  rusage usage = {};  // without /proc: the most that it has been
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

std::vector<std::pair<std::string, double>> seconds_by_family(const program::Executor& executor) {
  std::map<std::string, double> seconds;
  for (size_t p = 0; p < executor.set().programs.size(); ++p) {
    const program::Program& program = executor.program(p);
    for (const program::SegmentAt& segment : program::all_segments(program.chunks())) {
      for (const bool accumulates : {false, true}) {
        const auto& timings = executor.timings(p, segment, accumulates);
        for (size_t i = 0; i < timings.size(); ++i) {
          const auto& node = program.node_of(program.segment(segment, accumulates)[i]);
          seconds[std::string(node.op->family)] += timings[i].seconds;
        }
      }
    }
  }
  std::vector<std::pair<std::string, double>> sorted(seconds.begin(), seconds.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

RunReporter::RunReporter(FileSystem& files, const config::RunConfig& config,
                         const program::Executor& executor, int64_t total_steps, int64_t start_step,
                         const RunObserver& observer)
    : files_(files),
      observer_(observer),
      config_(config),
      executor_(executor),
      total_steps_(total_steps),
      folder_(config.run.folder),
      metrics_(files, folder_),
      alerts_(files, folder_),
      progress_(make_progress(total_steps, observer)),
      attempts_(observe::read_ledger(folder_ / "ledger.jsonl")) {
  metrics_.resume_at(start_step);
  undone_ = diagnosis::read_undone(folder_ / "metrics.discarded.jsonl");
  table_ = observe::read_metrics(folder_ / "metrics.jsonl");
  open_logs(start_step);
  changed();
}

void RunReporter::changed() {
  if (!config_.log.tensorboard) {
    tensorboard_.reset();
  } else if (!tensorboard_) {
    files_.create_directories(folder_ / "tensorboard");
    tensorboard_.emplace(files_, folder_ / "tensorboard", unix_seconds());
  }
}

void RunReporter::open_logs(int64_t step) {
  ranks_.reset();
  experts_.reset();
  layers_.reset();
  if (const int64_t every = config::steps_between(config_.log.layers); every > 0)
    layers_.emplace(files_, folder_, every, step);
  if (const program::Ranks& ranks = executor_.ranks(); !ranks.alone())
    ranks_.emplace(files_, folder_, ranks.all().size(), config_.log.interval_steps, step);
  if (const models::Experts& experts = executor_.set().options.model.experts; experts.count > 0) {
    experts_.emplace(files_, folder_, config_.log.interval_steps, step);
    alarm_.emplace(experts.route.k);
  }
}

void RunReporter::roll_back(int64_t step) {
  metrics_.resume_at(step);
  undone_ = diagnosis::read_undone(folder_ / "metrics.discarded.jsonl");
  table_.drop_after(step);
  open_logs(step);
}

void RunReporter::step(const StepRecord& record) {
  ++steps_seen_;
  alerts_.report();
  data_wait_seconds_ += record.data_wait_seconds;
  const double tokens_per_s = static_cast<double>(record.step_tokens) / record.step_seconds;
  const double flops_per_s = record.flops / record.step_seconds;
  const double mfu = record.peak_flops > 0 ? flops_per_s / record.peak_flops : kNotKnown;
  const auto memory = resident_bytes();
  observe::MetricFields fields{{"tokens", record.tokens}, {"time", unix_seconds()}};
  if (record.loss) fields.push_back({"loss", *record.loss});
  if (record.decision.skip != 0) fields.push_back({"skipped", true});  // no update was made
  if (record.decision.overflowed != 0) fields.push_back({"overflowed", true});
  fields.push_back({"grad_norm", record.grad_norm});
  if (record.decision.loss_scale > 0)
    fields.push_back({"loss_scale", static_cast<double>(record.decision.loss_scale)});
  fields.push_back({"lr", record.lr});
  fields.push_back({"tokens_per_s", tokens_per_s});
  if (record.peak_flops > 0) fields.push_back({"mfu_measured", mfu});
  fields.push_back({"flops_per_s", flops_per_s});
  fields.push_back({"step_ms", record.step_seconds * 1e3});
  fields.push_back({"data_wait_ms", record.data_wait_seconds * 1e3});
  fields.push_back({"checkpoint_ms", record.checkpoint_seconds * 1e3});
  if (record.copy_seconds > 0) fields.push_back({"copy_ms", record.copy_seconds * 1e3});
  fields.push_back({"memory_bytes", memory});
  if (record.mtp_loss) fields.push_back({"mtp_loss", *record.mtp_loss});
  if (record.indexer_loss) fields.push_back({"indexer_loss", *record.indexer_loss});
  if (record.indexer_share) fields.push_back({"indexer_share", *record.indexer_share});
  if (record.experts && record.loss) {  // router metrics need targets
    fields.push_back({"balance_loss", record.balance_loss});
    fields.push_back({"router_z_loss", record.router_z_loss});
    fields.push_back({"router_z", record.experts->router_z});
    fields.push_back({"expert_max_vio", record.experts->max_violation});
    fields.push_back({"expert_entropy", record.experts->entropy});
    fields.push_back({"dead_experts", record.experts->dead});
    if (record.experts->dropped) fields.push_back({"expert_dropped", *record.experts->dropped});
    if (record.experts->is_shared) {
      fields.push_back({"expert_rounds", record.experts->rounds});
      fields.push_back({"expert_rank_max_vio", record.experts->rank_violation});
    }
  }
  add_spread(fields, record.ranks);
  fields.push_back({"param_norm", record.param_norm});
  if (record.scores) {
    if (std::isfinite(record.scores->greatest))
      fields.push_back({"max_attention_score", record.scores->greatest});
    fields.push_back({"clipped_heads", record.scores->clipped});
  }
  if (record.noise_scale) fields.push_back({"noise_scale", *record.noise_scale});
  if (record.statistics) {
    const StepStatistics& found = *record.statistics;
    if (found.update_ratio) fields.push_back({"update_ratio", *found.update_ratio});
    if (found.logit_max) fields.push_back({"logit_max", *found.logit_max});
    if (found.attention_max) fields.push_back({"attention_max", *found.attention_max});
    if (layers_ && found.has_layers) layers_->step(record.step, layers_of(found));
  }
  fields.push_back({"weights_digest", record.weights_digest});
  fields.push_back({"first_sample", record.first_sample});
  for (const auto& [name, value] : record.evaluations) fields.push_back({name, value});
  metrics_.step(record.step, fields);
  if (ranks_) ranks_->step(record.step, figures_of(record.ranks));
  table_.add_step(record.step, fields);
  if (tensorboard_) tensorboard_->scalars(unix_seconds(), record.step, observe::scalars_of(fields));
  const int64_t every = std::max<int64_t>(1, config_.log.interval_steps);
  const bool logged = record.step % every == 0 || record.step == 1 || record.step == total_steps_;
  progress_.step({.step = record.step,
                  .loss = record.loss,
                  .grad_norm = record.grad_norm,
                  .lr = record.lr,
                  .tokens_per_s = tokens_per_s,
                  .mfu = mfu,
                  .memory_bytes = static_cast<double>(memory)},
                 record.step_seconds, logged);
  for (const auto& [name, value] : record.evaluations)
    progress_.note(fmt::format("{} {:.4f} at step {}", name, value, record.step));
  if (record.experts) watch_routing(record);
  // Drawing the page must take only a small fraction of the run's time.
  if (monotonic_seconds() - last_redraw_ > std::max(5.0, 200 * redraw_seconds_))
    redraw(observe::RunState::kRunning);
  if (observer_.step) observer_.step(record);
}

void RunReporter::watch_routing(const StepRecord& record) {
  experts_->step(record.step, record.experts->layers);
  if (!record.loss) return;
  const auto found = alarm_->step(record.experts->layers);
  if (!found) return;
  event("routing_collapse", record.step,
        {{"layers", fmt::format("{}", fmt::join(found->layers, ", "))},
         {"layer", found->worst},
         {"experts", found->experts},
         {"experts_in_use", found->spread.in_use},
         {"dead_experts", found->spread.dead},
         {"max_vio", found->spread.max_violation}});
  progress_.note(
      fmt::format("warning: step {}: {}", record.step, observe::sentence_of(table_.events().back())));
}

diagnosis::TimeAccount RunReporter::time_account() const {
  return diagnosis::time_account_of(
      diagnosis::TimeSources{.metrics = table_, .undone = undone_, .attempts = attempts_});
}

void RunReporter::event(const std::string& name, int64_t step, const observe::MetricFields& fields) {
  observe::MetricFields timed = fields;
  // Under strata launch; after a save or at an end they are as of now.
  constexpr std::array<std::string_view, 4> kWithShares = {"save", "finish", "interrupt", "time_limit"};
  if (!attempts_.empty() && std::find(kWithShares.begin(), kWithShares.end(), name) != kWithShares.end()) {
    const diagnosis::TimeAccount time = time_account();
    if (const auto goodput = time.goodput()) timed.push_back({"goodput", *goodput});
    if (const auto ettr = time.ettr()) timed.push_back({"ettr", *ettr});
  }
  timed.push_back({"time", unix_seconds()});
  metrics_.event(name, step, timed);
  if (name == "alert" || name == "gave_up") {
    const observe::MetricsEvent event{name, step, timed};
    alerts_.set_command(config::alert_command(config_));  // which may have changed
    alerts_.raise(name == "alert" ? observe::text_of(event, "rule") : name,
                  observe::event_line(name, step, timed));
  }
  table_.add_event({name, step, std::move(timed)});
}

void RunReporter::sample(int64_t step, const std::string& prompt, const std::string& text) {
  event("sample", step, {{"prompt", prompt}, {"text", text}});
  progress_.note(fmt::format("sample at step {}:\n{}\n", step, text));
  if (observer_.sample) observer_.sample(step, prompt, text);
}

namespace {

// The contents of the arena, by purpose.
std::vector<observe::MemoryShare> memory_shares(const program::Executor& executor,
                                                const config::RecoveryTable& recovery) {
  const program::ProgramSet& set = executor.set();
  std::map<graph::Role, double> by_role;
  for (const auto& value : set.persistent) by_role[value.role] += static_cast<double>(value.bytes);
  const std::pair<graph::Role, const char*> rows[] = {{graph::Role::kParameter, "weights"},
                                                      {graph::Role::kGradient, "gradients"},
                                                      {graph::Role::kState, "optimizer"},
                                                      {graph::Role::kEncoded, "packed weights"},
                                                      {graph::Role::kConstant, "tables"}};
  std::vector<observe::MemoryShare> shares;
  for (const auto& [role, name] : rows) shares.push_back({name, by_role[role], kNotKnown});
  shares.push_back(
      {"activations and scratch", static_cast<double>(set.arena_bytes - set.workspace_offset), kNotKnown});
  shares.push_back({"copies for saves", static_cast<double>(program::save_staging_bytes(set)), kNotKnown});
  if (has_snapshots(recovery, set))
    shares.push_back(
        {"snapshots to go back to", static_cast<double>(snapshot_bytes(recovery, set)), kNotKnown});
  if (const int64_t bytes = executor.ranks().staging_bytes(); bytes > 0)
    shares.push_back({"messages to other ranks", static_cast<double>(bytes), kNotKnown});
  return shares;
}

}  // namespace

void RunReporter::redraw(observe::RunState state, const std::string& why) {
  const double begin = monotonic_seconds();
  try {
    draw(state, why);
  } catch (const std::exception& error) {
    if (!std::exchange(drawing_failed_, true)) {
      log_warning("cannot write {}/loss.svg and index.html; the run continues without them: {}",
                  folder_.string(), error.what());
    }
  }
  last_redraw_ = monotonic_seconds();
  redraw_seconds_ = last_redraw_ - begin;
}

void RunReporter::draw(observe::RunState state, const std::string& why) {
  observe::write_loss_svg(files_, folder_ / "loss.svg", table_, config_.run.name);
  observe::RunPageData page;
  page.name = config_.run.name;
  page.state = state;
  page.state_text = why;
  page.updated = utc_timestamp();
  page.step = table_.steps().empty() ? 0 : table_.steps().back();
  page.total_steps = total_steps_;
  page.tokens = table_.last("tokens");
  page.seconds_elapsed = observe::elapsed_seconds(table_, unix_seconds());
  page.seconds_left = progress_.seconds_left();
  page.memory_budget_bytes =
      config_.memory.budget.is_word() ? kNotKnown : static_cast<double>((*config_.memory.budget).count);
  const diagnosis::TimeAccount time = time_account();
  page.goodput = time.goodput().value_or(kNotKnown);
  page.ettr = time.ettr().value_or(kNotKnown);
  page.ettr_predicted = time.ettr_predicted().value_or(kNotKnown);
  page.facts = facts_;
  page.metrics = &table_;
  if (ranks_) page.ranks = ranks_->samples();
  if (experts_) page.experts = experts_->samples();
  const double steps = static_cast<double>(std::max<int64_t>(1, steps_seen_));
  for (const auto& [family, seconds] : seconds_by_family(executor_)) {
    if (seconds > 0) page.step_time.push_back({family, seconds * 1e3 / steps});
  }
  page.step_time.push_back({"waiting for data", data_wait_seconds_ * 1e3 / steps});
  page.memory = memory_shares(executor_, config_.recovery);
  page.memory.push_back({"process, resident", 0, static_cast<double>(resident_bytes())});
  for (const auto& event : table_.events()) {
    if (event.event == "sample") {
      page.samples.push_back(
          {event.at_step, observe::text_of(event, "prompt"), observe::text_of(event, "text")});
    } else {
      page.events.push_back(
          {observe::time_text(event), event.at_step, event.event, observe::sentence_of(event)});
    }
  }
  page.go_on_command = fmt::format("strata train {}", folder_.string());
  if (const comm::World& world = executor_.ranks().world(); world.engine() == "local") {
    page.go_on_command += fmt::format(" --ranks {}", world.size());
  } else if (world.size() > 1) {
    page.go_on_command = fmt::format("mpirun -n {} {}", world.size(), page.go_on_command);
  }
  if (state == observe::RunState::kFinished && !extension_.empty()) page.go_on_command += " " + extension_;
  observe::write_run_page(files_, folder_ / "index.html", page);
}

void RunReporter::finish(observe::RunState state, const std::string& why) {
  progress_.finish();
  if (experts_) experts_->flush();
  alerts_.finish();
  redraw(state, why);
  metrics_.sync();
}

}  // namespace strata::training
