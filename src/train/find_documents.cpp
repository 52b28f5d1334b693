#include "train/find_documents.h"

#include "base/error.h"
#include "train/run_steps.h"

namespace strata::training {

FindResult find_documents(const FindOptions& options, FunctionRef<void(const FoundDocument&)> found) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const RunSteps steps(files, options.run);
  FindResult result{.first_step = steps.first(), .why = steps.why(), .made = steps.made()};
  if (options.step && *options.step < result.first_step) {
    throw ConfigError("[strata data find --step {}] {}; give a step from {} on", *options.step, result.why,
                      result.first_step);
  }
  std::shared_ptr<const config::RunPlan> plan;  // that of `documents`
  std::optional<RunDocuments> documents;
  result.last_step = steps.visit([&](const StepSamples& step) {
    if (options.step && step.step < *options.step) return true;
    if (plan != step.plan) {
      documents.reset();
      plan = step.plan;
      documents.emplace(plan->config, plan->data);
      if (!options.step) result.is_held_out = !documents->select(options.document);
    }
    const auto all = options.step ? documents->of(step.samples, step.first, step.count)
                                  : documents->selected_of(step.samples, step.first, step.count);
    for (const SampleDocument& one : all) found({step.step, step.is_made, one});
    return !options.step && !result.is_held_out;
  });
  if (options.step && result.last_step != *options.step) {
    throw ConfigError(
        "[strata data find --step {}] the run ends with step {}; give a step from {} on to that one",
        *options.step, result.last_step, result.first_step);
  }
  return result;
}

}  // namespace strata::training
