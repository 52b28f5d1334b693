#include "train/step_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "evaluation/evaluate.h"
#include "program/update.h"
#include "train/loss_terms.h"
#include "train/reporter.h"

namespace strata::train {

StepRunner::StepRunner(const RunInputs& inputs, program::Executor& executor, const RunPosition& position)
    : inputs_(inputs),
      executor_(executor),
      schedule_(config::schedule_of(inputs.config)),
      part_(config::batch_part(inputs.config.training.global_batch_size, inputs.ranks.batch_part(),
                               inputs.ranks.batch_parts())),
      experts_(inputs.model, executor.program(config::kTrainProgram).graph, inputs.ranks) {
  read_from(position.samples());
}

void StepRunner::read_from(std::shared_ptr<const data::SampleSource> samples) {
  const program::Request& request = executor_.program(config::kTrainProgram).request;
  loader_.reset();
  samples_ = std::move(samples);
  loader_ = std::make_unique<data::Loader>(
      *samples_, data::LoaderOptions{.max_sequences = std::max<int64_t>(1, part_.rows),
                                     .stride = inputs_.config.training.global_batch_size,
                                     .rows = request.micro_batches * request.sequences});
}

StepRecord StepRunner::run(const RunPosition& position, const std::function<void()>& before_update) {
  const double begin = monotonic_seconds();
  if (position.samples() != samples_) read_from(position.samples());
  StepRecord record;
  record.step = position.step() + 1;
  record.first_sample = position.first_sample();
  record.step_tokens = position.next_tokens();
  record.tokens = position.tokens() + record.step_tokens;
  record.lr = optim::learning_rate(schedule_, record.step);

  const data::HostBatch& batch = loader_->next(position.next_sample() + part_.first, part_.rows);
  record.data_wait_seconds = loader_->wait_seconds();
  program::write_hyper(executor_, {.max_grad_norm = inputs_.config.training.clip_grad_norm,
                                   .lr = static_cast<float>(record.lr)});
  if (const int64_t further = inputs_.model.predict_layers; further > 0) {
    terms_ = terms_of_all(count_terms(batch.targets, samples_->shape().tokens, further), inputs_.ranks);
    program::write_terms(executor_, terms_);
  }
  // From here to the end of the update instructions decide.
  run_script(record.step, batch, before_update);
  record.grad_norm = executor_.read<float>("grad_norm");
  record.param_norm = executor_.read<float>("param_norm");
  record.step_seconds = monotonic_seconds() - begin;
  return record;
}

void StepRunner::run_script(int64_t step, const data::HostBatch& batch,
                            const std::function<void()>& before_update) {
  using program::Segment;
  const program::Script& script = executor_.program(config::kTrainProgram).script;
  for (size_t i = 0; i < script.size(); ++i) {
    const program::Action& action = script[i];
    inputs_.ranks.world().doing(fmt::format("step {}, {}", step, program::str(action)));
    // A rank's first chunk is the first that reads a micro-batch.
    if (action.segment == Segment::kForward && action.chunk == 0) {
      evaluation::copy_rows(batch, samples_->shape(),
                            action.micro_batch * *inputs_.config.training.micro_batch_size, executor_,
                            config::kTrainProgram, action.micro_batch);
    }
    if (action.segment == Segment::kUpdate) before_update();
    executor_.run_in_script(config::kTrainProgram, i, true);
  }
}

StepNews StepRunner::news(const StepRecord& record) {
  StepNews news{.loss_sum = executor_.read<double>("loss_sum"),
                .tokens = static_cast<double>(executor_.read<int64_t>("token_count")),
                .compute_seconds = record.step_seconds,
                .data_wait_seconds = record.data_wait_seconds};
  const graph::Graph& graph = executor_.program(config::kTrainProgram).graph;
  // Ranks that hold the same sum report it once.
  const auto sum_of = [&](const std::string& name) {
    const graph::ValueId sum = graph.find_value(name);
    const bool reports = sum != graph::kNone && inputs_.ranks.is_first_holder(graph.value(sum).placements);
    return reports ? executor_.read<double>(name) : 0.0;
  };
  news.balance_loss_sum = sum_of("balance_loss_sum");
  news.router_z_loss_sum = sum_of("router_z_loss_sum");
  for (int64_t k = 1; k <= inputs_.model.predict_layers; ++k) {
    const double sum = sum_of(fmt::format("predict.{}.loss_sum", k));
    if (const int64_t terms = terms_[static_cast<size_t>(k)]; terms > 0)
      news.mtp_loss += sum / static_cast<double>(terms) / static_cast<double>(layers_with_terms());
  }
  if (!inputs_.ranks.is_first_holder(graph.value(graph.find_value("loss_sum")).placements))
    news.loss_sum = news.tokens = 0;
  news.memory_bytes = static_cast<double>(resident_bytes());
  const double waited = executor_.seconds_waited();
  news.compute_seconds -= waited - std::exchange(seconds_waited_, waited);
  return news;
}

void StepRunner::take(const std::vector<StepNews>& all, StepRecord& record) const {
  double sum = 0, tokens = 0, further = 0;
  for (const StepNews& one : all) {
    sum += one.loss_sum;
    tokens += one.tokens;
    record.balance_loss += one.balance_loss_sum;
    record.router_z_loss += one.router_z_loss_sum;
    further += one.mtp_loss;
  }
  if (tokens > 0) {
    record.balance_loss /= tokens;
    record.router_z_loss /= tokens;
    record.loss = sum / tokens;
  }
  if (layers_with_terms() > 0) record.mtp_loss = further;
  if (experts_.has_experts()) record.experts = experts_.read(executor_, tokens);
  if (all.size() > 1) record.ranks = all;
}

int64_t StepRunner::layers_with_terms() const {
  return terms_.empty() ? 0
                        : std::count_if(terms_.begin() + 1, terms_.end(), [](int64_t n) { return n > 0; });
}

}  // namespace strata::train
