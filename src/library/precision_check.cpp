#include "library/precision_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "config/names.h"
#include "config/plan.h"
#include "config/ramp.h"
#include "data/samples/loader.h"
#include "library/run_inputs.h"
#include "program/initialize.h"
#include "program/update.h"
#include "train/loss_terms.h"
#include "train/resume.h"
#include "train/run_position.h"
#include "train/steering.h"

namespace strata::library {
namespace {

struct Subject {
  config::RunConfig config;
  Path weights;        // a model directory or checkpoint that the user named; empty: none
  bool is_run = true;  // its folder may hold checkpoints and choices
};

// The run of RUN/checkpoints/step-N or RUN/final; empty: none.
Path run_of(const Path& weights) {
  const Path folder = std::filesystem::absolute(weights).lexically_normal();
  Path run = folder.parent_path();
  if (run.filename() == "checkpoints") {
    run = run.parent_path();
  } else if (folder.filename() != "final") {
    return {};
  }
  return std::filesystem::is_regular_file(run / "run.toml") ? run : Path();
}

// A few sequences of the model, if `sets` do not set them.
config::RunConfig config_of_model(const Path& folder, const std::vector<std::string>& sets) {
  constexpr int64_t kLength = 512, kSequences = 4;
  const std::vector<std::string> arguments{fmt::format("model.from=\"{}\"", folder.string())};
  config::RunConfig config = config::read_run_config({}, sets, arguments);
  auto& training = config.training;
  if (!config.was_set("training.sequence_length"))
    training.sequence_length = std::min(kLength, config::resolve_model(config).max_sequence_length());
  if (!config.was_set("training.micro_batch_size")) training.micro_batch_size = kSequences;
  if (!config.was_set("training.global_batch_size")) training.global_batch_size = *training.micro_batch_size;
  return config;
}

Subject subject_of(const PrecisionCheckOptions& options) {
  if (options.model.empty()) return {read_command_config(options.inputs, options.sets), {}};
  const Path weights = checkpoint::resolve_model(options.model);
  const Path run = run_of(weights);
  if (run.empty()) return {config_of_model(weights, options.sets), weights, false};
  auto config = config::read_asked_config(run, options.sets);
  STRATA_CHECK(config.has_value(), "{} has lost its run.toml", run.string());
  return {*std::move(config), weights};
}

std::shared_ptr<const config::RunPlan> plan_of(const Subject& subject) {
  constexpr config::RankPlace kAlone{.ranks = 1, .local_ranks = 1};
  if (!subject.is_run)
    return config::make_plan(subject.config, {.files = posix_file_system(), .place = kAlone});
  config::PlanOptions options = options_as_trained(subject.config, kAlone);
  options.data = config::PlanOptions::Data::kPrepared;
  return config::make_plan(subject.config, options);
}

void require_recipe(const config::RunConfig& config) {
  if (config::computes_in_codes(config)) return;
  const auto& compute = config.precision.compute;
  throw ConfigError(
      "[precision.compute] found \"{}\", expected \"fp8\" or \"fp4\": without a recipe no matmul reads 8 or 4 bits; "
      "add --set precision.compute=fp8, and with --set precision.recipe=… another recipe than its default",
      compute.is_word() ? std::string_view("auto") : config::spelled(*compute));
}

class Step {
 public:
  Step(const config::RunPlan& plan, const Subject& subject)
      : plan_(plan),
        config_(plan.config),
        executor_(plan.set(), config::make_device(config_)),
        inputs_{config_, plan.model, plan.tokens(), plan.data, executor_.ranks()},
        position_(inputs_, {}) {
    program::write_coordinates(executor_);
    load(subject);
    program_ = config::training_program(executor_.set(), config_, position_.size());
    executor_.run(program_, {program::Segment::kEncode});
    upload();
  }

  PrecisionCheck check(const std::function<void(double)>& progress) {
    const program::Request& request = executor_.program(program_).request;
    return {.recipe = config_.precision.recipe,
            .weights = weights_,
            .step = position_.step() + 1,
            .sequences = request.sequences,
            .sequence_length = request.sequence_length,
            .products = evaluation::measure_precision(executor_, program_, {.progress = progress})};
  }

 private:
  void load(const Subject& subject) {
    const training::RunStore store(posix_file_system(), config_.run.folder,
                                   training::RunStore::Role::kReader);
    std::optional<training::TrainingState> state;
    if (subject.weights.empty()) {
      state = store.load_newest(plan_.model, executor_);
    } else if (std::filesystem::exists(subject.weights / "manifest.json")) {
      state = store.load(subject.weights.string(), plan_.model, executor_);
    } else {
      checkpoint::load_hugging_face(subject.weights, plan_.model, executor_);
      weights_ = subject.weights.string();
      return;
    }
    if (!state) {
      training::start_weights(inputs_, executor_);
      weights_ = fmt::format("as a run of seed {} starts", config_.run.seed);
      return;
    }
    weights_ = subject.weights.empty() ? fmt::format("{} after step {}", config_.run.folder, state->step)
                                       : subject.weights.string();
    training::apply_settings(state->journal.settings(0, state->step), config_, position_);
    position_.continue_from(*state);
  }

  void upload() {
    const program::Request& request = executor_.program(program_).request;
    const int64_t pieces = config_.training.sequence_length / position_.size().length;
    const int64_t rows = (request.sequences + pieces - 1) / pieces;
    const data::SampleSource& samples = *position_.samples();
    // A run that has used up its data is checked on the last of them.
    const int64_t first = std::clamp<int64_t>(samples.total_samples() - rows, 0, position_.next_sample());
    data::HostBatch batch;
    data::BatchScratch scratch;
    data::fill_batch(samples, {.first = first, .sequences = rows, .pieces = pieces}, rows, batch, scratch);
    if (const int64_t further = plan_.model.predict_layers; further > 0) {
      const auto terms =
          training::count_terms(batch[Column::kTargets], samples.shape().tokens / batch.pieces, further);
      program::write_terms(executor_, training::terms_of_all(terms, executor_.ranks()));
    }
    executor_.upload_rows(program_, batch.rows(samples.shape()), 0, 0);
  }

  const config::RunPlan& plan_;
  config::RunConfig config_;  // with the settings of the journal; inputs_ refers to it
  program::Executor executor_;
  training::RunInputs inputs_;
  training::RunPosition position_;
  size_t program_ = 0;
  std::string weights_;
};

}  // namespace

double PrecisionCheck::worst() const {
  double worst = evaluation::kMostDecibels;
  for (const evaluation::ProductLoss& product : products) worst = std::min(worst, product.snr_db);
  return worst;
}

bool PrecisionCheck::fits() const {
  return std::all_of(products.begin(), products.end(), [](const auto& product) { return product.fits(); });
}

PrecisionCheck check_precision(const PrecisionCheckOptions& options) {
  if (options.inputs.empty() == options.model.empty())
    throw ConfigError("[strata check precision] give either a RUN.toml or --model DIR");
  Subject subject = subject_of(options);
  require_recipe(subject.config);
  subject.config.parallel = {};
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(subject.config, hooks);
  const auto plan = plan_of(subject);
  set_compute_threads(static_cast<int>(*plan->config.device.threads));
  flush_denormals();
  return Step(*plan, subject).check(options.progress);
}

}  // namespace strata::library
