#include "train/step_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "optim/score_clip/score_clip.h"
#include "program/update.h"
#include "train/injector.h"
#include "train/loss_terms.h"
#include "train/recompute_check.h"
#include "train/reporter.h"

namespace strata::training {

using graph::MetricKind;

StepRunner::StepRunner(const RunInputs& inputs, program::Executor& executor, const RunPosition& position)
    : inputs_(inputs),
      executor_(executor),
      schedule_(config::schedule_of(inputs.config)),
      loss_sum_(executor, config::kTrainProgram, MetricKind::kLossSum),
      token_count_(executor, config::kTrainProgram, MetricKind::kTokenCount),
      grad_norm_(executor, config::kTrainProgram, MetricKind::kGradNorm),
      param_norm_(executor, config::kTrainProgram, MetricKind::kParamNorm),
      score_clip_(executor, config::kTrainProgram, MetricKind::kScoreClip),
      balance_loss_sum_(executor, config::kTrainProgram, MetricKind::kBalanceLossSum),
      router_z_loss_sum_(executor, config::kTrainProgram, MetricKind::kRouterZLossSum),
      indexer_loss_sum_(executor, config::kTrainProgram, MetricKind::kIndexerLossSum),
      indexer_share_sum_(executor, config::kTrainProgram, MetricKind::kIndexerShareSum),
      experts_(executor, config::kTrainProgram),
      statistics_(std::in_place, executor, config::kTrainProgram) {
  for (int32_t k = 1; k <= inputs.model.predict_layers; ++k)
    further_.emplace_back(executor, config::kTrainProgram, MetricKind::kLossSum, k);
  program::start_loss_scale(executor, config::fixed_loss_scale(inputs.config));
  read_from(position.samples());
}

namespace {

RankPhase phase_of(program::Segment segment) {
  switch (segment) {
    case program::Segment::kForward:
      return RankPhase::kForward;
    case program::Segment::kBackward:
    case program::Segment::kInputGrad:
    case program::Segment::kWeightGrad:
      return RankPhase::kBackward;
    default:
      return RankPhase::kUpdate;
  }
}

}  // namespace

void StepRunner::read_from(std::shared_ptr<const data::SampleSource> samples) {
  // The largest batch of the run; programs of other sizes read the same rows or fewer.
  const program::Request& request = executor_.program(config::kTrainProgram).request;
  const int64_t rows = config::sequences_of_part(inputs_.config, inputs_.config.training.global_batch_size);
  loader_.reset();
  samples_ = std::move(samples);
  loader_ = std::make_unique<data::Loader>(
      *samples_,
      data::LoaderOptions{.max_sequences = rows, .rows = request.micro_batches * request.sequences});
}

config::BatchPart StepRunner::part_of(int64_t batch) const {
  return config::batch_part(batch, inputs_.ranks.batch_part(), inputs_.ranks.batch_parts());
}

void StepRunner::take_program(const config::StepSize& size) {
  const size_t next = config::training_program(executor_.set(), inputs_.config, size);
  // Its packed weights may be others than those that the last update has made.
  if (next != program_) executor_.run(next, {program::Segment::kEncode});
  if (next != program_) statistics_.emplace(executor_, next);
  program_ = next;
  if (injector_ != nullptr) injector_->use_program(next);
}

bool StepRunner::has_begun(const RunPosition& position) const {
  if (!begun_) return false;
  const StepRecord& record = begun_->record;
  return record.step == position.step() + 1 && record.first_sample == position.first_sample() &&
         record.size == position.size() && begun_->samples == position.samples().get();
}

void StepRunner::drop_started() {
  begun_.reset();
  executor_.drop_capture();
}

StepRecord StepRunner::run(const RunPosition& position, const StepSettings& settings,
                           const std::function<void()>& before_update, const RunPosition* next) {
  if (!has_begun(position)) {
    drop_started();
    begun_ = begin(position);
  }
  executor_.keep_capture(false);
  Begun step = std::move(*begun_);
  begun_.reset();
  terms_ = step.terms;
  StepRecord& record = step.record;
  record.lr = optim::learning_rate(schedule_, record.step) * settings.lr_factor;
  update(step, settings, before_update);
  executor_.capture();
  if (next != nullptr && executor_.device().is_asynchronous() && next->size() == record.size &&
      (check_ == nullptr || !check_->is_due(record.step + 1))) {
    executor_.keep_capture(true);
    begin_early(*next);
  }
  record.grad_norm = grad_norm_.read<float>();
  record.param_norm = param_norm_.read<float>();
  if (score_clip_.is_here()) record.scores = read_scores();
  record.decision = program::decision_of(executor_);
  const double end = monotonic_seconds();
  // Of a step that had begun earlier, what follows the step before it.
  record.step_seconds = end - std::max(step.at, last_end_);
  last_end_ = end;
  return std::move(record);
}

AttentionScores StepRunner::read_scores() const {
  AttentionScores scores{.greatest = -std::numeric_limits<double>::infinity()};
  const std::vector<double> rows = score_clip_.read_all<double>();  // of the stages of a pipeline
  for (size_t row = 0; row < rows.size(); row += optim::kScoreColumns) {
    if (rows[row + optim::kScoreHeads] == 0) continue;
    scores.greatest = std::max(scores.greatest, rows[row + optim::kGreatestScore]);
    scores.clipped += static_cast<int64_t>(rows[row + optim::kClippedHeads]);
  }
  return scores;
}

std::optional<ComputedValue> StepRunner::first_nonfinite(const RunPosition& position) {
  drop_started();
  const StepDigests digests(executor_, program_);
  begin(position);
  return digests.first_nonfinite();
}

void StepRunner::begin_early(const RunPosition& position) {
  try {
    begun_ = begin(position);
  } catch (const Error&) {
    // The step before it comes first, with its report and save. This one then meets the same error.
    begun_.reset();
  }
}

StepRunner::Begun StepRunner::begin(const RunPosition& position) {
  Begun step;
  step.at = monotonic_seconds();
  if (position.samples() != samples_) read_from(position.samples());
  step.samples = samples_.get();
  StepRecord& record = step.record;
  record.step = position.step() + 1;
  record.first_sample = position.first_sample();
  record.step_tokens = position.next_tokens();
  record.size = position.size();
  record.tokens = position.tokens() + record.step_tokens;

  take_program(record.size);
  const config::BatchPart part = part_of(record.size.sequences);
  const data::HostBatch& loaded =
      loader_->next({.first = position.next_sample() + part.first,
                     .sequences = part.rows,
                     .stride = record.size.sequences,
                     .pieces = inputs_.config.training.sequence_length / record.size.length});
  const data::HostBatch& batch = injector_ != nullptr ? injector_->tokens(record.step, loaded) : loaded;
  step.batch = &batch;
  record.data_wait_seconds = loader_->wait_seconds();
  if (const int64_t further = inputs_.model.predict_layers; further > 0) {
    step.terms =
        terms_of_all(count_terms(batch[Column::kTargets], samples_->shape().tokens / batch.pieces, further),
                     inputs_.ranks);
    program::write_terms(executor_, step.terms);
  }
  statistics_->begin(record.step, config::steps_between(inputs_.config.log.layers));
  if (check_ != nullptr && check_->is_due(record.step)) check_->begin(position, program_);
  run_micro_batches(step);
  return step;
}

void StepRunner::run_micro_batches(const Begun& step) {
  const program::Script& script = executor_.program(program_).script;
  const bool checks = check_ != nullptr && check_->is_due(step.record.step);
  const auto run_all = [&] {
    for (size_t i = 0; i < script.size() && is_of_micro_batch(script[i].segment); ++i)
      run_action(step.record.step, i, *step.batch, checks);
  };
  if (checks) check_->compute_next();
  run_all();
  if (checks && check_->must_repeat()) {
    run_all();
    check_->must_repeat();
  }
}

void StepRunner::update(const Begun& step, const StepSettings& settings,
                        const std::function<void()>& before_update) {
  statistics_->end();
  // The program decides how the update is made, not the host.
  program::write_hyper(executor_, {.max_grad_norm = inputs_.config.training.clip_grad_norm,
                                   .lr = static_cast<float>(step.record.lr),
                                   .embedding_scale = static_cast<float>(settings.embedding_scale),
                                   .rules = settings.rules});
  const program::Script& script = executor_.program(program_).script;
  for (size_t i = 0; i < script.size(); ++i) {
    if (is_of_micro_batch(script[i].segment)) continue;
    if (script[i].segment == program::Segment::kUpdate) before_update();
    run_action(step.record.step, i, *step.batch, false);
  }
  if (injector_ != nullptr) injector_->after_update();
}

void StepRunner::run_action(int64_t step, size_t at, const data::HostBatch& batch, bool checks) {
  const program::Program& program = executor_.program(program_);
  const program::Action& action = program.script[at];
  board_->enter(phase_of(action.segment), step);
  inputs_.ranks.world().doing(fmt::format("step {}, {}", step, program::str(action)));
  // A rank's first chunk reads a micro-batch first.
  if (action.segment == program::Segment::kForward && action.chunk == 0) {
    executor_.upload_rows(program_, batch.rows(samples_->shape()),
                          action.micro_batch * program.request.sequences, action.micro_batch);
  }
  const bool is_checked = checks && action.micro_batch == 0;
  if (is_checked) check_->own().begin();
  if (injector_ != nullptr) injector_->before_action(action);
  // What starts early could not run again.
  executor_.run_in_script(program_, at, !checks);
  if (injector_ != nullptr) injector_->after_action();
  if (is_checked) check_->own().end();
}

RankReport StepRunner::report(const StepRecord& record) {
  // Ranks that hold the same sum report it once.
  RankReport mine{.loss_sum = loss_sum_.read_reported<double>(),
                  .tokens = loss_sum_.is_reported() ? static_cast<double>(token_count_.read<int64_t>()) : 0,
                  .balance_loss_sum = balance_loss_sum_.read_reported<double>(),
                  .router_z_loss_sum = router_z_loss_sum_.read_reported<double>(),
                  .indexer_loss_sum = indexer_loss_sum_.read_reported<double>(),
                  .indexer_share_sum = indexer_share_sum_.read_reported<double>(),
                  .compute_seconds = record.step_seconds,
                  .data_wait_seconds = record.data_wait_seconds};
  for (size_t k = 0; k < further_.size(); ++k) {
    const double sum = further_[k].read_reported<double>();
    if (const int64_t terms = terms_[k + 1]; terms > 0)
      mine.mtp_loss += sum / static_cast<double>(terms) / static_cast<double>(layers_with_terms());
  }
  mine.memory_bytes = static_cast<double>(resident_bytes());
  mine.used_weights = SplitDigest(statistics_->used_weights_digest());
  mine.weights = SplitDigest(statistics_->weights_digest());
  mine.gradients = SplitDigest(statistics_->gradients_digest());
  const optim::GuardHistory history = program::guard_history(executor_);
  const auto digest_of = [](const auto& value) { return hash64(&value, sizeof value); };
  mine.judgement = SplitDigest(digest_of(record.decision) + 31 * digest_of(history));
  mine.is_first_with_weights = statistics_->is_first_with_weights() ? 1 : 0;
  mine.first_replica = static_cast<double>(statistics_->first_replica());
  const double waited = executor_.seconds_waited();
  mine.compute_seconds -= waited - std::exchange(seconds_waited_, waited);
  return mine;
}

void StepRunner::take(const std::vector<RankReport>& all, StepRecord& record) {
  std::vector<uint64_t> digests;
  double sum = 0, tokens = 0, further = 0, indexers = 0, shares = 0;
  for (const RankReport& one : all) {
    sum += one.loss_sum;
    tokens += one.tokens;
    record.balance_loss += one.balance_loss_sum;
    record.router_z_loss += one.router_z_loss_sum;
    indexers += one.indexer_loss_sum;
    shares += one.indexer_share_sum;
    further += one.mtp_loss;
    digests.push_back(one.is_first_with_weights != 0 ? one.weights.joined() : 0);
  }
  if (tokens > 0) {
    record.balance_loss /= tokens;
    record.router_z_loss /= tokens;
    if (inputs_.model.indexer) record.indexer_loss = indexers / tokens;
    if (shares > 0) record.indexer_share = shares / tokens / static_cast<double>(inputs_.model.indexers());
    record.loss = sum / tokens;
  }
  if (layers_with_terms() > 0) record.mtp_loss = further;
  if (experts_.has_experts()) record.experts = experts_.read(tokens);
  if (all.size() > 1) record.ranks = all;
  record.weights_digest = digest_text(StatisticsWatch::joined_digest(digests));
  record.statistics = statistics_->read(tokens, record.decision.loss_scale);
  if (record.statistics && !record.statistics->noise.empty()) {
    noise_.add(record.statistics->noise, tokens);
    record.noise_scale = noise_.tokens();
  }
}

int64_t StepRunner::layers_with_terms() const {
  return terms_.empty() ? 0
                        : std::count_if(terms_.begin() + 1, terms_.end(), [](int64_t n) { return n > 0; });
}

}  // namespace strata::training
