#include "strata/data.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/quantity.h"
#include "data/build/finish.h"
#include "library/recipe_run.h"

namespace strata {
namespace library {
namespace {

// For one of `ranks` that share this machine.
int64_t memory_limit(const std::string& option, int64_t of_recipe, int ranks) {
  if (option != "auto") {
    const auto bytes = parse_byte_size(option);
    if (!bytes || *bytes <= 0) {
      throw ConfigError("[--memory-limit] {} is not a size above 0; write one like 8GiB or 8GB, or auto",
                        option);
    }
    return *bytes;
  }
  return of_recipe > 0 ? of_recipe : available_memory() / 4 * 3 / std::max(1, ranks);
}

}  // namespace

BuiltData run_recipe(comm::World& world, const ConfigValue& tree, const Path& file,
                     const strata::BuildOptions& options) {
  data::Recipe recipe = data::read_recipe(tree, file);
  recipe.memory_limit = memory_limit(options.memory_limit, recipe.memory_limit, world.local_size());
  BuiltData built;
  built.job = data::make_job(
      std::move(recipe), posix_file_system(), options.stop ? options.stop : [] { return false; });
  data::BuildOptions build_options{.overwrite = options.overwrite, .progress = {}};
  if (world.rank() == 0 && options.progress) {
    build_options.progress = [&options](const data::BuildProgress& progress) {
      options.progress({progress.what, progress.done, progress.total, progress.finished});
    };
  }
  built.result = data::run_build(*built.job, world, build_options);
  return built;
}

}  // namespace library

BuildReport build_data(const std::string& recipe, const BuildOptions& options) {
  const LogSink lines(options.log);
  const auto world = comm::single_process_world();
  const library::BuiltData built =
      library::run_recipe(*world, data::read_recipe_tree(recipe, options.sets), recipe, options);
  const data::BuildResult& result = built.result;
  BuildReport report{.finished = result.finished,
                     .reused = result.reused,
                     .folder = built.job->recipe.folder.string(),
                     .seconds = result.seconds,
                     .json = {}};
  if (!result.finished) return report;
  report.documents_read = result.stats.rows.front().documents_in;
  report.documents_kept = result.stats.rows.back().documents_out;
  report.bytes_kept = result.stats.rows.back().bytes_out;
  report.tokens = result.stats.tokens;
  report.json = data::summary_json(*built.job, result);
  return report;
}

}  // namespace strata
