#include "train/evaluations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "config/objective.h"
#include "config/tokenizer_ends.h"
#include "evaluation/task_score.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"

namespace strata::training {

void check_prompts(const config::RunConfig& config, const data::Tokenizer* tokenizer,
                   const program::ProgramSet& set) {
  if (tokenizer == nullptr || !config::writes_samples(config, set.options.model)) return;
  const program::Request& reads = set.programs[config::kPrefillProgram].request;
  const int64_t most = reads.encoder_length > 0
                           ? reads.encoder_length
                           : std::min(set.options.cache_capacity, set.options.model.max_sequence_length());
  for (const std::string& prompt : config.eval.sample_prompts) {
    const auto ids = config::sample_prompt(config, *tokenizer, prompt, reads.encoder_length > 0);
    config::require_rows(ids, *tokenizer, set.options.model, "eval.sample_prompts");
    const auto size = std::ssize(ids);
    if (size > most)
      throw ConfigError("[eval.sample_prompts] \"{}\" has {} tokens: at most {} fit; shorten it", prompt,
                        size, most);
  }
}

Evaluations::Evaluations(const RunInputs& inputs, program::Executor& executor)
    : inputs_(inputs), executor_(executor), due_(inputs.config.eval.interval) {}

void Evaluations::pack_weights(size_t program) {
  if (executor_.set().options.precision != nullptr) executor_.run(program, {program::Segment::kEncode});
}

bool Evaluations::has_any() const {
  return inputs_.config.eval.interval.kind != config::Interval::Kind::kNever &&
         (!inputs_.data.held_out.empty() || !inputs_.data.tasks.empty());
}

EvaluationResults Evaluations::measure(int64_t step, const std::function<bool()>& stop) {
  inputs_.ranks.world().doing(fmt::format("evaluation after step {}", step));
  EvaluationResults results;
  if (!inputs_.data.held_out.empty()) pack_weights(config::kEvalProgram);
  if (!inputs_.data.tasks.empty()) pack_weights(config::task_program(executor_.set()));
  add_held_out(results);
  for (const config::TaskSet& set : inputs_.data.tasks) {
    if (!add_task(set, stop, results)) break;
  }
  due_.done();
  return results;
}

evaluation::EvalResult Evaluations::evaluate_set(const data::EvalWindows& windows,
                                                 std::vector<evaluation::LayerCounts>& routing) {
  if (inputs_.model.experts.count == 0) return evaluation::evaluate(executor_, config::kEvalProgram, windows);
  evaluation::RoutingResult result = evaluation::evaluate_routing(executor_, config::kEvalProgram, windows);
  if (!result.layers.empty()) routing.push_back(std::move(result.layers));
  return result.loss;
}

void Evaluations::add_held_out(EvaluationResults& results) {
  const config::RunConfig& config = inputs_.config;
  const data::ObjectiveOptions objective =
      config::objective_options(config, inputs_.model, inputs_.tokenizer);
  std::vector<evaluation::LayerCounts> routing;  // by set
  for (const config::HeldOut& held : inputs_.data.held_out) {
    const data::EvalWindows windows(held.corpus, {.sequence_length = config.training.sequence_length,
                                                  .pack = config.data.pack,
                                                  .max_tokens = held.max_tokens,
                                                  .objective = objective});
    const evaluation::EvalResult result = evaluate_set(windows, routing);
    results.emplace_back("eval/" + held.name + "/loss", result.loss());
    // The loss bounds the size of the compressed text only if every token is predicted.
    if (held.bytes_per_token > 0 && objective.kind == data::Objective::kCausal) {
      results.emplace_back("eval/" + held.name + "/bits_per_byte",
                           result.loss() / std::log(2.0) / held.bytes_per_token);
    }
  }
  if (routing.size() > 1)
    results.emplace_back("eval/expert_specialisation", evaluation::mean_specialisation(routing));
}

bool Evaluations::add_task(const config::TaskSet& set, const std::function<bool()>& stop,
                           EvaluationResults& results) {
  const auto& requests = set.requests.requests;
  const size_t program = config::task_program(executor_.set());
  const evaluation::PackedRequests packed(requests, executor_.program(program).request.sequence_length);
  bool stopped = false;
  const auto scores = evaluation::score_requests(executor_, program, requests, packed, [&](double) {
    stopped = stop();
    return !stopped;
  });
  if (!scores.empty()) {
    for (const evaluation::TaskMetric& metric : evaluation::sum_up(set.task, scores).metrics)
      results.emplace_back("eval/" + set.name + "/" + metric.name, metric.value);
  }
  return !stopped;
}

std::vector<Evaluations::Text> Evaluations::write_texts() {
  const config::RunConfig& config = inputs_.config;
  if (inputs_.tokenizer == nullptr || !config::writes_samples(config, inputs_.model)) return {};
  const data::Tokenizer& tokenizer = *inputs_.tokenizer;
  pack_weights(config::kPrefillProgram);
  executor_.run(config::kDecodeProgram, {program::Segment::kEncode});  // weights of decoding
  inference::Generator generator(executor_, config::kPrefillProgram, config::kDecodeProgram);
  std::vector<std::string> prompts = config.eval.sample_prompts;
  if (prompts.empty()) prompts.push_back("");
  std::vector<int32_t> end_ids = inference::stop_ids(inputs_.model, &tokenizer);
  if (const auto end = tokenizer.end_of_text_id();
      end && std::count(end_ids.begin(), end_ids.end(), *end) == 0)
    end_ids.push_back(*end);
  std::vector<Text> texts;
  for (const std::string& prompt : prompts) {
    std::vector<int32_t> ids = config::sample_prompt(config, tokenizer, prompt, generator.has_encoder());
    if (ids.empty()) ids.push_back(tokenizer.end_of_text_id().value_or(0));
    const auto made = generator.generate(
        ids, {.max_tokens = std::min(config.eval.sample_tokens,
                                     generator.max_new_tokens(static_cast<int64_t>(ids.size()))),
              .temperature = 0.8,
              .top_p = 0.95,
              .seed = inference::seed_of_text(static_cast<uint64_t>(config.run.seed), prompt, 0),
              .stop_ids = end_ids,
              .vocab_limit = tokenizer.vocab_size()});
    // A decoder continues its prompt; an encoder-decoder writes a separate text.
    texts.push_back({prompt, (generator.has_encoder() ? "" : prompt) + tokenizer.decode_text(made)});
  }
  return texts;
}

}  // namespace strata::training
