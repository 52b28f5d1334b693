#include "launch/refit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "config/layout.h"
#include "config/plan.h"
#include "config/resolve.h"

namespace strata::launch {
namespace {

using config::ParallelTable;

// In the order of their effect on the work of a rank: replicas and shards only divide the batch and the memory.
struct Degree {
  const char* name;
  int64_t ParallelTable::*value;
  int weight;  // of a change, to choose between equal numbers of changes
};
constexpr Degree kDegrees[] = {{"shard", &ParallelTable::shard, 1},
                               {"replicate", &ParallelTable::replicate, 1},
                               {"context", &ParallelTable::context, 4},
                               {"pipeline", &ParallelTable::pipeline, 4},
                               {"tensor", &ParallelTable::tensor, 4}};

// Keys that have no use with some degrees, which validation rejects unless they have their default.
struct Dependent {
  const char* name;
  void (*reset)(ParallelTable&);
  const char* usual;  // TOML
};
template <auto kMember>
void reset(ParallelTable& parallel) {
  parallel.*kMember = ParallelTable().*kMember;
}
constexpr Dependent kDependents[] = {
    {"schedule", reset<&ParallelTable::schedule>, "\"1f1b\""},
    {"virtual_stages", reset<&ParallelTable::virtual_stages>, "1"},
    {"stage_layers", reset<&ParallelTable::stage_layers>, "\"auto\""},
    {"context_kind", reset<&ParallelTable::context_kind>, "\"all_gather\""},
    {"sequence", reset<&ParallelTable::sequence>, "true"},
    {"overlap_chunks", reset<&ParallelTable::overlap_chunks>, "1"},
    {"dispatch", reset<&ParallelTable::dispatch>, "\"auto\""},
    {"expert_capacity", reset<&ParallelTable::expert_capacity>, "\"auto\""},
    {"zero", reset<&ParallelTable::zero>, "\"auto\""},
    {"prefetch", reset<&ParallelTable::prefetch>, "\"auto\""},
    {"reshard_after_forward", reset<&ParallelTable::reshard_after_forward>, "\"auto\""}};

struct Candidate {
  ParallelTable parallel;
  std::vector<std::string> sets;
  int weight = 0;
  double distance = 0;
};

// Whether strata train would accept it, except for memory, which ranks may have on other hosts. Layers check their degrees
// when the program of a step is compiled.
bool is_valid(const config::RunConfig& config, int64_t ranks) {
  try {
    const config::IssueHook written[] = {config::check_model, config::check_idle_keys};
    if (!config::validate(config, written).empty()) return false;
    const config::IssueHook hooks[] = {config::check_model};
    if (!config::validate(config::with_degrees(config, ranks), hooks).empty()) return false;
    config::make_plan(config, {.files = posix_file_system(),
                               .place = {.ranks = ranks, .local_ranks = 1},
                               .stored = config::read_stored_config(config.run.folder),
                               .data = config::PlanOptions::Data::kNone,
                               .keep_unfit = true});
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Every number of ranks over which experts may be distributed in a layout, that of the configuration first.
std::vector<int64_t> expert_degrees(const ParallelTable& asked, int64_t ranks) {
  std::vector<int64_t> out{asked.expert};
  if (asked.expert == 1) return out;
  for (int64_t degree = ranks; degree >= 1; --degree) {
    if (ranks % degree == 0 && degree != asked.expert) out.push_back(degree);
  }
  return out;
}

class Search {
 public:
  Search(const config::RunConfig& config, int64_t ranks) : config_(config), ranks_(ranks) {
    split(config.parallel, 0, ranks);
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      if (a.sets.size() != b.sets.size()) return a.sets.size() < b.sets.size();
      return a.weight != b.weight ? a.weight < b.weight : a.distance < b.distance;
    });
  }

  std::optional<std::vector<std::string>> first_valid() const {
    for (const Candidate& candidate : candidates_) {
      config::RunConfig tried = config_;
      tried.parallel = candidate.parallel;
      if (is_valid(tried, ranks_)) return candidate.sets;
    }
    return std::nullopt;
  }

 private:
  // Tries every way to split the remaining ranks over the degrees from `next` on.
  void split(const ParallelTable& degrees, size_t next, int64_t left) {
    if (next == std::size(kDegrees)) {
      if (left == 1) add(degrees);
      return;
    }
    for (int64_t value = 1; value <= left; ++value) {
      if (left % value != 0) continue;
      ParallelTable with = degrees;
      with.*kDegrees[next].value = value;
      split(with, next + 1, left / value);
    }
  }

  void add(const ParallelTable& found) {
    ParallelTable degrees = found;
    const ParallelTable& asked = config_.parallel;
    for (const int64_t expert : expert_degrees(asked, ranks_)) {
      Candidate candidate;
      for (const Degree& degree : kDegrees) {
        int64_t& value = degrees.*degree.value;
        const int64_t before = asked.*degree.value;
        if (before < 0) {  // the remaining ranks: open in the candidate too
          value = before;
          continue;
        }
        if (value == before) continue;
        candidate.sets.push_back(fmt::format("parallel.{}={}", degree.name, value));
        candidate.weight += degree.weight;
        candidate.distance += std::abs(std::log2(static_cast<double>(value) / static_cast<double>(before)));
      }
      candidate.parallel = degrees;
      if (expert != asked.expert) {
        candidate.parallel.expert = expert;
        candidate.sets.push_back(fmt::format("parallel.expert={}", expert));
        candidate.weight += 2;
      }
      reset_unused(candidate);
      candidates_.push_back(std::move(candidate));
    }
  }

  void reset_unused(Candidate& candidate) const {
    config::RunConfig tried = config_;
    tried.parallel = candidate.parallel;
    for (const config::Issue& issue : config::idle_keys(tried)) {
      const auto found = std::find_if(std::begin(kDependents), std::end(kDependents), [&](const auto& one) {
        return issue.key == std::string("parallel.") + one.name;
      });
      if (found == std::end(kDependents)) continue;
      found->reset(candidate.parallel);
      const std::string set = fmt::format("parallel.{}={}", found->name, found->usual);
      if (std::find(candidate.sets.begin(), candidate.sets.end(), set) == candidate.sets.end())
        candidate.sets.push_back(set);
    }
  }

  const config::RunConfig& config_;
  int64_t ranks_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<std::vector<std::string>> refit(const config::RunConfig& config, int64_t ranks) {
  return Search(config, ranks).first_valid();
}

}  // namespace strata::launch
