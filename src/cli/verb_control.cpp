// strata stop, save and set: requests to a running run.
#include <fmt/core.h>

#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "library/steering.h"

namespace strata::cli {
namespace {

using What = training::Request::What;

// What a request has done, for people.
std::string outcome_text(const training::Request& request, const std::string& run, int64_t step) {
  switch (request.what) {
    case What::kStop:
      return fmt::format("stopped: step {0} is saved in {1}/checkpoints; `strata train {1}` resumes", step,
                         run);
    case What::kSave:
      return fmt::format("saved: step {} is in {}/checkpoints/step-{:08}", step, run, step);
    case What::kSet:
      break;
  }
  std::string text = fmt::format("set from step {} on:", step);
  for (const config::NewSetting& setting : request.settings)
    text += fmt::format(" {} = {}", setting.key, setting.value);
  return text;
}

int control(const ControlOptions& options, What what) {
  const training::Request request = library::make_request(what, options.assignments);
  const library::SentRequest sent = library::send_request(options.run, request);
  if (options.no_wait) {
    if (options.json) {
      print_out("{}\n", dump_json(nlohmann::ordered_json{{"id", request.id}, {"result", "sent"}}));
    } else {
      log_info("sent; the run answers in {}/control.jsonl", options.run);
    }
    return 0;
  }
  const library::SteeringAnswer answer = library::wait_for_answer(sent, stop_requested);
  if (options.json) {
    print_out("{}\n", answer.line);
  } else {
    log_info("{}", outcome_text(request, options.run, answer.at_step));
  }
  return 0;
}

Verb control_verb(Verb root, const char* name, const char* help, const char* example,
                  const std::shared_ptr<ControlOptions>& options) {
  Verb verb = root.verb(name, help, example);
  verb.option("RUN", options->run, "The folder of a running run").required();
  return verb;
}

void finish_control_verb(Verb verb, const std::shared_ptr<ControlOptions>& options,
                         int (*run)(const ControlOptions&)) {
  verb.flag("--no-wait", options->no_wait, "Do not wait for the run's answer");
  verb.json(options->json);
  verb.action([options, run] { return run(*options); });
}

}  // namespace

int run_stop(const ControlOptions& options) {
  return control(options, What::kStop);
}
int run_save(const ControlOptions& options) {
  return control(options, What::kSave);
}
int run_set(const ControlOptions& options) {
  return control(options, What::kSet);
}

void add_stop(Verb root) {
  auto options = std::make_shared<ControlOptions>();
  const Verb verb = control_verb(root, "stop", "Save a running run and end it; its exit code is 130",
                                 "strata stop runs/my", options);
  finish_control_verb(verb, options, run_stop);
}

void add_save(Verb root) {
  auto options = std::make_shared<ControlOptions>();
  const Verb verb =
      control_verb(root, "save", "Make a running run save a checkpoint now", "strata save runs/my", options);
  finish_control_verb(verb, options, run_save);
}

void add_set(Verb root) {
  auto options = std::make_shared<ControlOptions>();
  Verb verb = control_verb(root, "set", "Change settings of a running run from its next step on",
                           "strata set runs/my optimizer.lr=5e-4", options);
  verb.option(
          "KEY=VALUE", options->assignments,
          "Settings of log, eval, checkpoint and recovery, optimizer.lr, training.clip_grad_norm, data.skip; "
          "all of them or none")
      .required()
      .suggest(steerable_keys());
  finish_control_verb(verb, options, run_set);
}

}  // namespace strata::cli
