#include "train/past_run.h"

#include "base/error.h"
#include "config/layout.h"
#include "train/run_store.h"

namespace strata::training {

config::RunConfig config_of_run(const Path& run, const std::string& verb, std::span<const std::string> sets) {
  auto stored = config::read_stored_config(run, sets);
  if (!stored) {
    throw ConfigError("[strata {}] {} holds no run: it has no run.toml; give the folder of a run", verb,
                      run.string());
  }
  stored->run.folder = run.string();
  stored->run.chosen.clear();  // nothing is chosen again
  return *stored;
}

std::shared_ptr<const config::RunPlan> plan_of_run(FileSystem& files, const Path& run,
                                                   const config::RunConfig& config,
                                                   std::vector<int32_t> places) {
  const auto ranks = static_cast<int>(config::mesh_of(config).ranks());
  config::PlanOptions options{
      .files = files, .place = {.ranks = ranks, .local_ranks = ranks}, .stored = config};
  options.stored_tokenizer = stored_tokenizer(run).value_or(Path());
  options.places = std::move(places);
  return config::make_plan(config, options);
}

}  // namespace strata::training
