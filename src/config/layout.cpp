#include "config/layout.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::config {
namespace {

// Pairs of replicate and shard that make this number of ranks and are nearest to what was asked for.
std::string nearest(const ParallelTable& asked, int64_t ranks) {
  struct Choice {
    int64_t replicate, distance;
  };
  std::vector<Choice> choices;
  for (int64_t replicate = 1; replicate <= ranks; ++replicate) {
    if (ranks % replicate != 0) continue;
    const int64_t shard = ranks / replicate;
    choices.push_back({replicate, std::abs(replicate - std::max<int64_t>(1, asked.replicate)) +
                                      std::abs(shard - std::max<int64_t>(1, asked.shard))});
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.distance < b.distance; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, choices.size()); ++i) {
    text += fmt::format("{}replicate = {}, shard = {}", i == 0 ? "" : "; ", choices[i].replicate,
                        ranks / choices[i].replicate);
  }
  return text;
}

}  // namespace

void resolve_degrees(RunConfig& config, int64_t ranks) {
  ParallelTable& parallel = config.parallel;
  const ParallelTable asked = parallel;
  int64_t given = 1;
  int64_t* open = nullptr;  // the degree for what is left
  for (const auto& [name, degree] :
       {std::pair{"replicate", &parallel.replicate}, std::pair{"shard", &parallel.shard}}) {
    if (*degree == 0)
      throw ConfigError("[parallel.{}] found 0, expected a number of ranks, or -1 for those that are left",
                        name);
    if (*degree > 0) {
      given *= *degree;
      continue;
    }
    if (open != nullptr)
      throw ConfigError(
          "[parallel] both replicate and shard are -1, expected one of them for the ranks that are left");
    open = degree;
  }
  if (open != nullptr && ranks % given == 0) {
    *open = ranks / given;
    given = ranks;
  }
  if (given == ranks) return;
  throw ConfigError(
      "[parallel] replicate = {}, shard = {} {} {} ranks, and {} were started; with {} ranks the nearest are "
      "{}, or start "
      "{} ranks",
      asked.replicate, asked.shard, open != nullptr ? "need a multiple of" : "make", given, ranks, ranks,
      nearest(asked, ranks), given);
}

graph::Mesh mesh_of(const RunConfig& config) {
  const auto at_least_one = [](int64_t degree) { return std::max<int64_t>(1, degree); };
  return graph::Mesh::of(at_least_one(config.parallel.replicate), at_least_one(config.parallel.shard), 1, 1);
}

comm::WorldOptions world_options(const RunConfig& config) {
  return {.silence_limit = config.parallel.silence_limit.seconds,
          .wait_limit = config.parallel.wait_limit.seconds,
          .progress_thread = config.parallel.progress == Progress::kThread};
}

BatchPart batch_part(int64_t rows, int64_t index, int64_t parts) {
  const int64_t first = rows * index / parts;
  return {first, rows * (index + 1) / parts - first};
}

int64_t sequences_of_part(const RunConfig& config) {
  const int64_t parts = mesh_of(config).batch_ranks();
  return (config.training.global_batch_size + parts - 1) / parts;
}

int64_t micro_batches_of_part(const RunConfig& config) {
  const int64_t size = *config.training.micro_batch_size;
  return (sequences_of_part(config) + size - 1) / size;
}

}  // namespace strata::config
