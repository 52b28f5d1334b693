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

// Whether a degree stands in messages: the batch's always, others where somebody asked for them.
bool is_told(const Degree& degree, const ParallelTable& asked) {
  return degree.value == &ParallelTable::replicate || degree.value == &ParallelTable::shard ||
         asked.*degree.value != 1;
}

// "replicate = 2, shard = 4", and what else was asked for.
std::string text_of(const ParallelTable& degrees, const ParallelTable& asked) {
  std::string text;
  for (const Degree& degree : kDegrees) {
    if (!is_told(degree, asked)) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", degree.name, degrees.*degree.value);
  }
  return text;
}

// Degrees that make this number of ranks and are nearest to what was asked for.
std::string nearest(const ParallelTable& asked, int64_t ranks) {
  struct Choice {
    ParallelTable degrees;
    int64_t distance = 0;
  };
  std::vector<Choice> choices;
  // Every way to split what is left over the degrees from `next` on.
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
    for (int64_t value = 1; value <= (is_told(degree, asked) ? left : 1); ++value) {
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

// Whom experts fold over. Shards beyond that become replicas, whether their number was given or left open.
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
  const Degree* open = nullptr;  // for what is left
  for (const Degree& degree : kDegrees) {
    const int64_t value = parallel.*degree.value;
    if (value == 0)
      throw ConfigError("[parallel.{}] found 0, expected a number of ranks, or -1 for those that are left",
                        degree.name);
    if (value > 0) {
      given *= value;
      continue;
    }
    if (open != nullptr) {
      throw ConfigError("[parallel] both {} and {} are -1, expected one of them for the ranks that are left",
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
        "[parallel.expert] found 0, expected a number of ranks, or -1 for all that can share experts");
  if (given != ranks) {
    throw ConfigError(
        "[parallel] {} {} {} ranks, and {} were started; with {} ranks the nearest are {}, or start {} ranks",
        text_of(asked, asked), open != nullptr ? "need a multiple of" : "make", given, ranks, ranks,
        nearest(asked, ranks), given);
  }
  fold_experts(parallel);
  std::vector<Choice> made;
  for (const Degree& degree : kDegrees) {
    if (parallel.*degree.value == asked.*degree.value) continue;
    made.push_back(chosen(std::string("parallel.") + degree.name, parallel.*degree.value,
                          &degree == open ? fmt::format("the ranks that are left, of {}", ranks)
                                          : "so that whole groups of ranks share experts"));
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

std::vector<Fault> idle_keys(const RunConfig& config) {
  const ParallelTable& parallel = config.parallel;
  const bool alone = parallel.shard == 1, gathers = parallel.zero.is_word() || *parallel.zero >= 3;
  struct Rule {
    const char* key;
    bool idle;
    const char* cause;   // what leaves it without effect
    const char* remedy;  // what would give it one
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
  std::vector<Fault> faults;
  for (const Rule& rule : rules) {
    if (!rule.idle) continue;
    const auto spec = std::find_if(table.keys.begin(), table.keys.end(),
                                   [&](const KeySpec& one) { return one.name == rule.key; });
    const auto found = spec->write(table.at(own, 0)), standard = spec->write(table.at(usual, 0));
    const bool is_set = found && !(standard && same_value(*found, *standard)) &&
                        !(found->get_if<int64_t>() && *found->get_if<int64_t>() == 0);
    if (!is_set) continue;
    const std::string key = std::string("parallel.") + rule.key;
    faults.push_back(
        {key, config.origin_of(key),
         fmt::format("found {} with {}, where it does nothing; leave it out{}, or set {}", to_toml(*found),
                     rule.cause, standard ? " (" + to_toml(*standard) + ")" : "", rule.remedy)});
  }
  return faults;
}

void check_idle_keys(const RunConfig& config, std::vector<Fault>& faults) {
  // A run that was started on one rank has stored degrees of 1 where -1 stood.
  if (!config.run.started_in.empty()) return;
  for (Fault& fault : idle_keys(config)) faults.push_back(std::move(fault));
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
  if (!parallel.expert_capacity.is_word()) layout.room = *parallel.expert_capacity;
  // Neighbours in rank share a host.
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

int64_t sequences_of_part(const RunConfig& config) {
  const int64_t parts = mesh_of(config).batch_ranks();
  return (config.training.global_batch_size + parts - 1) / parts;
}

int64_t micro_batches_of_part(const RunConfig& config) {
  const int64_t size = *config.training.micro_batch_size;
  return (sequences_of_part(config) + size - 1) / size;
}

bool has_equal_rows(const RunConfig& config, int64_t sequences) {
  const graph::Mesh mesh = mesh_of(config);
  const int64_t rows = sequences * config.training.sequence_length / mesh.size(graph::Axis::kContext);
  return !config.parallel.sequence || rows % mesh.size(graph::Axis::kTensor) == 0;
}

}  // namespace strata::config
