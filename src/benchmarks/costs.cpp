// strata bench load, eval: the costs of a run besides its steps, relative to them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "config/objective.h"
#include "data/samples/loader.h"
#include "evaluation/evaluate.h"
#include "inference/generate.h"

namespace strata::benchmarks {
namespace {

constexpr double kStepSeconds = 6;
constexpr int kLoads = 20;
constexpr int64_t kEvalBatches = 4;

template <typename Run>
double seconds_of(const Run& run) {
  const double begin = monotonic_seconds();
  run();
  return monotonic_seconds() - begin;
}

// How often an event with this interval occurs in a run; the last step always has one.
double times(const config::Interval& interval, const config::RunConfig& config, double run_seconds,
             double cost) {
  const auto steps = static_cast<double>(config::total_steps(config));
  const auto step_tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  double every = std::numeric_limits<double>::infinity();  // steps
  switch (interval.kind) {
    case config::Interval::Kind::kNever:
      break;
    case config::Interval::Kind::kSteps:
      every = static_cast<double>(interval.count);
      break;
    case config::Interval::Kind::kTokens:
      every = static_cast<double>(interval.count) / step_tokens;
      break;
    case config::Interval::Kind::kSeconds:
      every = interval.seconds / run_seconds * steps;
      break;
    case config::Interval::Kind::kAuto:
      every = config::auto_checkpoint_seconds(cost) / run_seconds * steps;
      break;
  }
  return std::max(1.0, std::ceil(steps / std::max(1.0, every)));
}

double evaluation_seconds(BenchRun& run) {
  double seconds = 0;
  for (const config::HeldOut& held : run.data.held_out) {
    data::EvalOptions options{.sequence_length = run.config.training.sequence_length,
                              .pack = run.config.data.pack,
                              .max_tokens = held.max_tokens,
                              .objective = run.samples().options().objective};
    const data::EvalWindows whole(held.corpus, options);
    const int64_t all = whole.windows();
    const int64_t some = *run.config.training.micro_batch_size * kEvalBatches;
    options.max_tokens = some * whole.shape().window;
    if (held.max_tokens > 0) options.max_tokens = std::min(options.max_tokens, held.max_tokens);
    const data::EvalWindows part(held.corpus, options);
    const double once = seconds_of([&] { evaluation::evaluate(run.executor(), config::kEvalProgram, part); });
    seconds += once * static_cast<double>(all) / static_cast<double>(part.windows());
  }
  return seconds;
}

double samples_seconds(BenchRun& run) {
  if (!config::writes_samples(run.config, run.model)) return 0;
  inference::Generator generator(run.executor(), config::kPrefillProgram, config::kDecodeProgram);
  const int32_t prompt[] = {0};
  const double once = seconds_of([&] {
    generator.generate(prompt,
                       {.max_tokens = std::min(run.config.eval.sample_tokens, generator.max_new_tokens(1)),
                        .temperature = 0.8,
                        .top_p = 0.95});
  });
  return once * static_cast<double>(std::max<size_t>(1, run.config.eval.sample_prompts.size()));
}

}  // namespace

void bench_load(BenchContext& context) {
  BenchRun run(context.sets);
  const int64_t sequences = run.config.training.global_batch_size;
  const double step = run.step_seconds(kStepSeconds);

  // On this thread, without prefetching.
  data::HostBatch batch;
  batch.resize(run.samples().shape(), sequences);
  data::BatchScratch scratch;
  std::vector<double> fills, copies, waits;
  for (int64_t i = 0; i < kLoads; ++i) {
    fills.push_back(seconds_of([&] { run.samples().fill(i * sequences, sequences, batch.view(), scratch); }));
    copies.push_back(seconds_of([&] {
      for (int64_t m = 0; m < run.micro_batches(); ++m) run.copy_batch(batch, m);
    }));
  }
  // As in a run: the loader's thread prepares batches while this one computes.
  data::Loader loader(run.samples(), {.max_sequences = sequences});
  for (int64_t i = 0; i < 4; ++i) {
    loader.next(i * sequences, sequences);
    if (i > 0) waits.push_back(loader.wait_seconds());
    run.compute_micro_batch(0);
  }
  const double fill = median(fills), copy = median(copies), wait = median(waits);
  const auto tokens = static_cast<double>(run.step_tokens());
  context.print("\n{}: {:.0f} ms per step\n", run.describe(), 1e3 * step);
  auto row = [&](const char* what, double seconds) {
    context.print("  {:<44} {:>10.3f} ms {:>9.4f} % of a step\n", what, 1e3 * seconds, 100 * seconds / step);
  };
  row("wait for the batch, prepared by the loader", wait);
  row("copy into the arena", copy);
  row("added to a step (wait + copy)", wait + copy);
  row("work of the loader's thread", fill);
  context.print("  the loader fills {:.0f}M tokens/s\n", tokens / fill / 1e6);
  context.result = {{"step_seconds", step},          {"wait_seconds", wait},
                    {"copy_seconds", copy},          {"fill_seconds", fill},
                    {"share", (wait + copy) / step}, {"share_with_fill", (wait + copy + fill) / step}};
}

void bench_eval(BenchContext& context) {
  BenchRun run(context.sets);
  const auto steps = static_cast<double>(config::total_steps(run.config));
  const double step = run.step_seconds(kStepSeconds);
  const double run_seconds = steps * step;

  training::RunStore store(posix_file_system(), run.folder() / "run");
  training::TrainingState state;
  state.step = 1;
  const training::RunStore::Save save{.model = run.model,
                                      .executor = run.executor(),
                                      .tokenizer = nullptr,
                                      .state = state,
                                      .health = {.loss = 1, .grad_norm = 1, .finite = true, .metrics = {}},
                                      .retention = {.keep_last = run.config.checkpoint.keep_last}};
  uint64_t bytes = 0;
  const double checkpoint = seconds_of([&] { bytes = store.save(save); });
  const double final_model = seconds_of([&] { store.write_final(save); });
  const double evaluation = evaluation_seconds(run);
  const double samples = samples_seconds(run);

  context.print("\n{}: {:.0f} ms per step, {:.0f} steps, {} in total\n", run.describe(), 1e3 * step, steps,
                human_duration(run_seconds));
  context.print("  each cost measured once, times its occurrences in a run; a checkpoint is {}\n",
                human_bytes(static_cast<double>(bytes)));
  context.print("  {:<12} {:>10} {:>8} {:>10} {:>12}\n", "", "once", "times", "total", "share of run");
  double all = 0;
  context.result = {{"step_seconds", step}, {"steps", steps}, {"checkpoint_bytes", bytes}};
  auto row = [&](const char* what, double once, double count) {
    all += once * count;
    context.print("  {:<12} {:>8.2f} s {:>8.0f} {:>8.1f} s {:>10.3f} %\n", what, once, count, once * count,
                  100 * once * count / run_seconds);
    context.result[what] = {{"once_seconds", once}, {"times", count}};
  };
  const double evaluations = times(run.config.eval.interval, run.config, run_seconds, 0);
  row("evaluation", evaluation, evaluations);
  row("samples", samples, evaluations);
  row("checkpoint", checkpoint, times(run.config.checkpoint.interval, run.config, run_seconds, checkpoint));
  row("final model", final_model, 1);
  context.print("  {:<12} {:>31.1f} s {:>10.3f} %\n", "total", all, 100 * all / (run_seconds + all));
  context.result["share"] = all / (run_seconds + all);
}

}  // namespace strata::benchmarks
