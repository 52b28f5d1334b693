// What a run measures of its model beside training: held-out losses, tasks and samples of text.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "comm/exchange.h"
#include "config/objective.h"
#include "config/tokenizer_ends.h"
#include "evaluation/evaluate.h"
#include "evaluation/routing.h"
#include "evaluation/task_score.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"
#include "train/training_loop.h"

namespace strata::train {

using program::Segment;

// The loss of a set; of a model with experts, `routing` gets where this rank saw its tokens go.
evaluation::EvalResult TrainingLoop::evaluate_set(const data::EvalWindows& windows,
                                                  std::vector<evaluation::LayerCounts>& routing) {
  if (!experts_->has_experts()) return evaluation::evaluate(*executor_, config::kEvalProgram, windows);
  evaluation::RoutingResult result = evaluation::evaluate_routing(*executor_, config::kEvalProgram, windows);
  if (!result.layers.empty()) routing.push_back(std::move(result.layers));
  return result.loss;
}

void TrainingLoop::evaluate_all() {
  ranks_.world().doing(fmt::format("evaluation after step {}", step_));
  const data::ObjectiveOptions objective = config::objective_options(config_, model_, tokenizer());
  std::vector<evaluation::LayerCounts> routing;  // of each set
  for (const config::HeldOut& held : data_.held_out) {
    const data::EvalWindows windows(held.corpus, {.sequence_length = config_.training.sequence_length,
                                                  .pack = config_.data.pack,
                                                  .max_tokens = held.max_tokens,
                                                  .objective = objective});
    const evaluation::EvalResult result = evaluate_set(windows, routing);
    record_.evaluations.emplace_back("eval/" + held.name + "/loss", result.loss());
    // Only where all tokens are told does the loss say how short the text could be written.
    if (held.bytes_per_token > 0 && objective.kind == data::Objective::kCausal) {
      record_.evaluations.emplace_back("eval/" + held.name + "/bits_per_byte",
                                       result.loss() / std::log(2.0) / held.bytes_per_token);
    }
  }
  if (routing.size() > 1)
    record_.evaluations.emplace_back("eval/expert_specialisation", evaluation::mean_specialisation(routing));
  for (const config::TaskSet& set : data_.tasks) {
    if (!stop_seen_) evaluate_task(set);
  }
  evaluations_ = record_.evaluations;
}

void TrainingLoop::evaluate_task(const config::TaskSet& set) {
  const auto& requests = set.requests.requests;
  const size_t program = config::task_program(executor_->set());
  const evaluation::PackedRequests packed(requests, executor_->program(program).request.sequence_length);
  const auto scores = evaluation::score_requests(*executor_, program, requests, packed, [&](double) {
    stop_seen_ = comm::max_over(ranks_.all(), stop_() ? 1 : 0) > 0;
    return !stop_seen_;
  });
  if (scores.empty()) return;
  for (const evaluation::TaskMetric& metric : evaluation::sum_up(set.task, scores).metrics)
    record_.evaluations.emplace_back("eval/" + set.name + "/" + metric.name, metric.value);
}

void TrainingLoop::write_samples(Reporter& reporter) {
  if (!tokenizer_ || !config::writes_samples(config_, model_)) return;
  executor_->run(config::kDecodeProgram, {Segment::kEncode});  // what only decoding reads
  inference::Generator generator(*executor_, config::kPrefillProgram, config::kDecodeProgram);
  std::vector<std::string> prompts = config_.eval.sample_prompts;
  if (prompts.empty()) prompts.push_back("");
  std::vector<int32_t> end_ids = inference::stop_ids(model_, &*tokenizer_);
  if (const auto end = tokenizer_->end_of_text_id();
      end && std::count(end_ids.begin(), end_ids.end(), *end) == 0)
    end_ids.push_back(*end);
  for (const std::string& prompt : prompts) {
    std::vector<int32_t> ids = config::sample_prompt(config_, *tokenizer_, prompt, generator.has_encoder());
    if (ids.empty()) ids.push_back(tokenizer_->end_of_text_id().value_or(0));
    const auto made = generator.generate(
        ids, {.max_tokens = std::min(config_.eval.sample_tokens,
                                     generator.max_new_tokens(static_cast<int64_t>(ids.size()))),
              .temperature = 0.8,
              .top_p = 0.95,
              .seed = inference::seed_of_text(static_cast<uint64_t>(config_.run.seed), prompt, 0),
              .stop_ids = end_ids,
              .vocab_limit = tokenizer_->vocab_size()});
    // A decoder goes on from its prompt, an encoder-decoder writes a text of its own.
    reporter.sample(step_, prompt, (generator.has_encoder() ? "" : prompt) + tokenizer_->decode_text(made));
  }
}

}  // namespace strata::train
