#include "config/layout.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.h"
#include "config/keys.h"

namespace strata::config {
namespace {

struct Degree {
  const char* name;
  int64_t ParallelTable::*value;
};
constexpr Degree kDegrees[] = {{"pipeline", &ParallelTable::pipeline},
                               {"replicate", &ParallelTable::replicate},
                               {"shard", &ParallelTable::shard},
                               {"context", &ParallelTable::context},
                               {"tensor", &ParallelTable::tensor}};

// Whether messages show a degree: always those of the batch, others only if the user set them.
bool is_shown(const Degree& degree, const ParallelTable& asked) {
  return degree.value == &ParallelTable::replicate || degree.value == &ParallelTable::shard ||
         asked.*degree.value != 1;
}

// "replicate = 2, shard = 4", and the other degrees that were set.
std::string text_of(const ParallelTable& degrees, const ParallelTable& asked) {
  std::string text;
  for (const Degree& degree : kDegrees) {
    if (!is_shown(degree, asked)) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", degree.name, degrees.*degree.value);
  }
  return text;
}

// Degrees that yield this number of ranks and are nearest to the requested ones.
std::string nearest(const ParallelTable& asked, int64_t ranks) {
  struct Choice {
    ParallelTable degrees;
    int64_t distance = 0;
  };
  std::vector<Choice> choices;
  // Tries every way to split the remaining ranks over the degrees from `next` on.
  const std::function<void(ParallelTable, size_t, int64_t)> split = [&](ParallelTable degrees, size_t next,
                                                                        int64_t left) {
    if (next == std::size(kDegrees)) {
      if (left != 1) return;
      Choice choice{std::move(degrees)};
      for (const Degree& degree : kDegrees)
        choice.distance += std::abs(choice.degrees.*degree.value - std::max<int64_t>(1, asked.*degree.value));
      choices.push_back(std::move(choice));
      return;
    }
    const Degree& degree = kDegrees[next];
    for (int64_t value = 1; value <= (is_shown(degree, asked) ? left : 1); ++value) {
      if (left % value != 0) continue;
      degrees.*degree.value = value;
      split(degrees, next + 1, left / value);
    }
  };
  split(asked, 0, ranks);
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.distance < b.distance; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, choices.size()); ++i)
    text += (i == 0 ? "" : "; ") + text_of(choices[i].degrees, asked);
  return text;
}

// Sets the ranks that experts fold over. Shards beyond those become replicas, whether or not the user set
// their number.
void fold_experts(ParallelTable& parallel) {
  const int64_t inner = parallel.context * (parallel.expert_tensor > 1 ? 1 : parallel.tensor);
  const int64_t shards = parallel.expert / std::max<int64_t>(1, inner);
  if (parallel.expert > inner && parallel.expert % inner == 0 && parallel.shard % shards == 0) {
    parallel.replicate *= parallel.shard / shards;
    parallel.shard = shards;
  }
  if (parallel.expert < 0) parallel.expert = parallel.shard * inner;
}

}  // namespace

std::vector<Choice> choose_degrees(const RunConfig& config, int64_t ranks) {
  const ParallelTable& asked = config.parallel;
  ParallelTable parallel = asked;
  int64_t given = 1;
  const Degree* open = nullptr;  // for the remaining ranks
  for (const Degree& degree : kDegrees) {
    const int64_t value = parallel.*degree.value;
    if (value == 0)
      throw ConfigError("[parallel.{}] found 0, expected a number of ranks, or -1 for the remaining ranks",
                        degree.name);
    if (value > 0) {
      given *= value;
      continue;
    }
    if (open != nullptr) {
      throw ConfigError("[parallel] both {} and {} are -1, expected one of them for the remaining ranks",
                        open->name, degree.name);
    }
    open = &degree;
  }
  if (open != nullptr && ranks % given == 0) {
    parallel.*open->value = ranks / given;
    given = ranks;
  }
  if (parallel.expert == 0)
    throw ConfigError(
        "[parallel.expert] found 0, expected a number of ranks, or -1 for every rank that can share experts");
  if (given != ranks) {
    throw ConfigError(
        "[parallel] {} {} {} ranks, but {} were started; with {} ranks the nearest are {}, or start {} ranks",
        text_of(asked, asked), open != nullptr ? "need a multiple of" : "make", given, ranks, ranks,
        nearest(asked, ranks), given);
  }
  fold_experts(parallel);
  std::vector<Choice> made;
  for (const Degree& degree : kDegrees) {
    if (parallel.*degree.value == asked.*degree.value) continue;
    made.push_back(chosen(std::string("parallel.") + degree.name, parallel.*degree.value,
                          &degree == open ? fmt::format("the remaining ranks of {}", ranks)
                                          : "so that experts are shared by whole groups of ranks"));
  }
  if (parallel.expert != asked.expert)
    made.push_back(chosen("parallel.expert", parallel.expert, "all ranks that can share experts"));
  return made;
}

RunConfig with_degrees(const RunConfig& config, int64_t ranks) {
  return with(config, choose_degrees(config, ranks));
}

std::string layout_in_words(const RunConfig& config) {
  const ParallelTable& parallel = config.parallel;
  std::string text = fmt::format("replicate {} x shard {}", parallel.replicate, parallel.shard);
  const auto degree = [&](const char* name, int64_t ranks) {
    if (ranks > 1) text += fmt::format(" x {} {}", name, ranks);
  };
  degree("context", parallel.context);
  degree("tensor", parallel.tensor);
  degree("pipeline", parallel.pipeline);
  if (parallel.pipeline > 1) text += fmt::format(" ({})", parallel.schedule);
  if (parallel.expert > 1) text += fmt::format(", experts over {}", parallel.expert);
  if (parallel.zero.value) text += fmt::format(", ZeRO stage {}", *parallel.zero);
  return text;
}

std::vector<Issue> idle_keys(const RunConfig& config) {
  const ParallelTable& parallel = config.parallel;
  const bool alone = parallel.shard == 1, gathers = parallel.zero.is_word() || *parallel.zero >= 3;
  struct Rule {
    const char* key;
    bool idle;
    const char* cause;   // why it has no effect
    const char* remedy;  // how to give it one
  };
  const Rule rules[] = {
      {"schedule", parallel.pipeline == 1, "parallel.pipeline = 1", "parallel.pipeline above 1"},
      {"virtual_stages", parallel.pipeline == 1, "parallel.pipeline = 1", "parallel.pipeline above 1"},
      {"stage_layers", parallel.pipeline == 1, "parallel.pipeline = 1", "parallel.pipeline above 1"},
      {"context_kind", parallel.context == 1, "parallel.context = 1", "parallel.context above 1"},
      {"sequence", parallel.tensor == 1, "parallel.tensor = 1", "parallel.tensor above 1"},
      {"overlap_chunks", parallel.tensor == 1, "parallel.tensor = 1", "parallel.tensor above 1"},
      {"overlap_chunks", parallel.tensor != 1 && !parallel.sequence, "parallel.sequence = false",
       "parallel.sequence = true"},
      {"dispatch", parallel.expert == 1, "parallel.expert = 1", "parallel.expert above 1"},
      {"expert_capacity", parallel.expert == 1, "parallel.expert = 1", "parallel.expert above 1"},
      {"zero", alone, "parallel.shard = 1", "parallel.shard above 1"},
      {"prefetch", alone, "parallel.shard = 1", "parallel.shard above 1"},
      {"prefetch", !alone && !gathers, "parallel.zero below 3", "parallel.zero = 3"},
      {"reshard_after_forward", alone, "parallel.shard = 1", "parallel.shard above 1"},
      {"reshard_after_forward", !alone && !gathers, "parallel.zero below 3", "parallel.zero = 3"}};
  const TableSpec& table = *find_table("parallel");
  RunConfig own = config, usual;
  std::vector<Issue> issues;
  for (const Rule& rule : rules) {
    if (!rule.idle) continue;
    const auto spec = std::find_if(table.keys.begin(), table.keys.end(),
                                   [&](const KeySpec& one) { return one.name == rule.key; });
    const auto found = spec->write(table.at(own, 0)), standard = spec->write(table.at(usual, 0));
    const bool is_set = found && !(standard && same_value(*found, *standard)) &&
                        !(found->get_if<int64_t>() && *found->get_if<int64_t>() == 0);
    if (!is_set) continue;
    const std::string key = std::string("parallel.") + rule.key;
    issues.push_back(
        {key, config.origin_of(key),
         fmt::format("found {} with {}, which makes it unused; leave it out{}, or set {}", to_toml(*found),
                     rule.cause, standard ? " (" + to_toml(*standard) + ")" : "", rule.remedy)});
  }
  return issues;
}

void check_idle_keys(const RunConfig& config, std::vector<Issue>& issues) {
  // A run that was started on one rank has stored degrees of 1 in place of -1.
  if (!config.run.started_in.empty()) return;
  for (Issue& issue : idle_keys(config)) issues.push_back(std::move(issue));
}

graph::Mesh mesh_of(const RunConfig& config) {
  const auto at_least_one = [](int64_t degree) { return std::max<int64_t>(1, degree); };
  const ParallelTable& parallel = config.parallel;
  return graph::Mesh::of(at_least_one(parallel.replicate), at_least_one(parallel.shard),
                         at_least_one(parallel.context), at_least_one(parallel.tensor),
                         at_least_one(parallel.pipeline));
}

layers::ExpertLayout expert_layout(const RunConfig& config, int64_t host_ranks) {
  const ParallelTable& parallel = config.parallel;
  layers::ExpertLayout layout{.ranks = std::max<int64_t>(1, parallel.expert),
                              .tensor = parallel.expert_tensor};
  if (!parallel.expert_capacity.is_word()) layout.capacity = *parallel.expert_capacity;
  // Consecutive ranks share a host.
  const bool spans_hosts = host_ranks < layout.ranks && layout.ranks % host_ranks == 0;
  if (parallel.dispatch != Dispatch::kFlat && spans_hosts) layout.node_ranks = host_ranks;
  return layout;
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

int64_t sequences_of_part(const RunConfig& config, int64_t batch) {
  const int64_t parts = mesh_of(config).batch_ranks();
  return (batch + parts - 1) / parts;
}

int64_t micro_batches_of_part(const RunConfig& config, int64_t batch) {
  const int64_t size = *config.training.micro_batch_size;
  return (sequences_of_part(config, batch) + size - 1) / size;
}

bool has_equal_rows(const RunConfig& config, int64_t sequences) {
  const graph::Mesh mesh = mesh_of(config);
  const int64_t rows = sequences * config.training.sequence_length / mesh.size(graph::Axis::kContext);
  return !config.parallel.sequence || rows % mesh.size(graph::Axis::kTensor) == 0;
}

}  // namespace strata::config
