// strata eval --task
#include "cli/eval_task.h"
#include "cli/output.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/share_done.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "config/tokenizer_ends.h"
#include "evaluation/task_score.h"
#include "inference/model_runtime.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string sample_line(const evaluation::Task& task, size_t i, const evaluation::ItemScore& score,
                        std::span<const evaluation::RequestScore> requests) {
  const evaluation::TaskItem& item = task.items[i];
  Json json{{"line", item.line}, {"context", item.context}, {"choices", item.choices}};
  for (const evaluation::RequestScore& request : requests) {
    json["loglikelihoods"].push_back(request.log_likelihood);
    json["greedy"].push_back(request.greedy);
  }
  json["acc"] = score.acc ? 1 : 0;
  if (task.kind == evaluation::TaskKind::kMultipleChoice) {
    json["acc_norm"] = score.acc_norm ? 1 : 0;
    json["gold"] = item.gold;
    json["predicted"] = score.predicted;
    json["predicted_norm"] = score.predicted_norm;
  }
  return dump_json(json, -1, InvalidUtf8::kReplace) + "\n";
}

}  // namespace

int run_task_evaluation(const EvalOptions& options) {
  if (options.jsonl.empty()) throw ConfigError("[eval] --task needs --jsonl FILE, the task's questions");
  const evaluation::Task task = evaluation::read_task(options.task, options.jsonl, options.limit);
  inference::ModelRuntime runtime = inference::open_model(options.model);
  if (!runtime.tokenizer) {
    throw ConfigError("[{}] has no tokenizer.json; put the model's tokenizer there", runtime.folder.string());
  }
  if (runtime.model.architecture != models::Architecture::kDecoder) {
    throw ConfigError(
        "[eval] --task {}: tasks are scored by continuing a text, but {} is {} ({}); "
        "expected a decoder",
        options.task, runtime.folder.string(), config::kind_of(runtime.model), runtime.model.family->name);
  }
  const int64_t positions = runtime.model.max_positions;
  if (options.sequence_length > positions) {
    throw ConfigError("[eval] --sequence-length {} is beyond the model's {} positions",
                      options.sequence_length, positions);
  }
  const int64_t most = options.sequence_length > 0 ? options.sequence_length : positions;
  const evaluation::TaskRequests requests =
      evaluation::make_requests(task, *runtime.tokenizer, evaluation::prefix_token(*runtime.tokenizer), most);
  for (const evaluation::TaskRequest& request : requests.requests)
    config::require_rows(request.ids, *runtime.tokenizer, runtime.model, task.source);
  if (requests.truncated > 0) {
    log_warning("{} of {} requests are longer than {} tokens; their contexts are cut on the left",
                requests.truncated, requests.requests.size(), most);
  }
  const int64_t length = evaluation::task_row_length(requests.longest, positions);
  const evaluation::PackedRequests packed(requests.requests, length);
  inference::load_runtime(runtime, {.compute = config::compute_options(config::config_of_sets(options.sets)),
                                    .requests = {evaluation::task_program(length, packed.rows())}});
  std::vector<evaluation::RequestScore> scores;
  {
    ShareDone show;
    scores = evaluation::score_requests(*runtime.executor, 0, requests.requests, packed, [&](double share) {
      show(share);
      return !stop_requested();
    });
  }
  if (stop_requested()) return stop_exit_code();
  const evaluation::TaskScore score = evaluation::sum_up(task, scores);
  if (!options.samples.empty()) {
    std::string lines;
    size_t at = 0;
    for (size_t i = 0; i < task.items.size(); ++i) {
      const size_t count = task.items[i].choices.size();
      lines += sample_line(task, i, score.items[i], std::span(scores).subspan(at, count));
      at += count;
    }
    write_file_atomically(posix_file_system(), options.samples, lines);
  }
  Json json{{"task", task.name}, {"samples", task.items.size()}};
  std::string text = fmt::format("{}  {} samples", task.name, task.items.size());
  for (const evaluation::TaskMetric& metric : score.metrics) {
    const std::string name = metric.name;
    json[name] = metric.value;
    json[name + "_stderr"] = metric.standard_error ? Json(*metric.standard_error) : Json(nullptr);
    text += fmt::format("  {} {:.4f}", name, metric.value);
    if (metric.standard_error) text += fmt::format(" ± {:.4f}", *metric.standard_error);
  }
  json["truncated"] = requests.truncated;
  print_out("{}\n", options.json ? dump_json(json) : text);
  return 0;
}

}  // namespace strata::cli
