#include "config/inject.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/random.h"
#include "base/suggest.h"
#include "config/layout.h"

namespace strata::config {
namespace {

using enum FaultKind;
using enum FaultPhase;

constexpr std::array<std::string_view, 11> kKindNames = {
    "nan", "inf", "spike", "garbage", "flip", "slow", "stop", "kill", "full_disk", "slow_disk", "drop"};
constexpr std::array<std::string_view, 5> kPhaseNames = {"fwd", "bwd", "update", "save", "gather"};
constexpr std::array<std::string_view, 5> kWhereNames = {"weights", "gradients", "snapshot", "checkpoint",
                                                         "copy"};
// Those that random faults choose from: every run has them.
constexpr size_t kRandomWhere = 4;

constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr double kMostSeconds = 86400, kMostFactor = 1e6;

// The problem of an entry, without the entry.
struct Wrong {
  std::string what;
};
template <typename... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  throw Wrong{fmt::format(format, std::forward<Args>(args)...)};
}

std::string listed(std::span<const std::string_view> names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return out;
}

// The place of a name in a list.
size_t place_of(std::string_view what, std::string_view name, std::span<const std::string_view> names) {
  if (const auto at = std::find(names.begin(), names.end(), name); at != names.end())
    return static_cast<size_t>(at - names.begin());
  const std::vector<std::string> known(names.begin(), names.end());
  const auto near = nearest_name(name, known);
  wrong("found the {} \"{}\", {}expected {}", what, name,
        near ? fmt::format("did you mean \"{}\"? ", *near) : "", listed(names));
}

FaultKind kind_of(std::string_view name) {
  return static_cast<FaultKind>(place_of("kind", name, kKindNames));
}

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int64_t whole_number(std::string_view key, std::string_view text, int64_t least, int64_t most) {
  const auto number = number_in<int64_t>(text);
  if (!number || *number < least || *number > most) {
    if (most == kMostSteps) wrong("found {}={}, expected a whole number from {}", key, text, least);
    wrong("found {}={}, expected a whole number from {} to {}", key, text, least, most);
  }
  return *number;
}

double real_number(std::string_view key, std::string_view text, double least, double most) {
  const auto number = number_in<double>(text);
  if (!number || !(*number >= least && *number <= most))
    wrong("found {}={}, expected a number from {} to {}", key, text, least, most);
  return *number;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(by, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

struct Pair {
  std::string_view key, value;
};
std::vector<Pair> pairs_of(std::string_view text) {
  std::vector<Pair> pairs;
  for (const std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size())
      wrong("found \"{}\", expected KEY=VALUE", part);
    const Pair pair{part.substr(0, equals), part.substr(equals + 1)};
    if (std::any_of(pairs.begin(), pairs.end(), [&](const Pair& other) { return other.key == pair.key; }))
      wrong("found {} twice", pair.key);
    pairs.push_back(pair);
  }
  return pairs;
}

// The phases that a kind may have; empty: none.
std::vector<FaultPhase> phases_of(FaultKind kind) {
  switch (kind) {
    case kNan:
    case kInf:
      return {kForward, kBackward, kUpdate};
    case kStop:
    case kKill:
    case kDrop:
      return {kForward, kBackward, kUpdate, kSave, kGather};
    case kSpike:
    case kGarbage:
    case kFlip:
    case kSlow:
    case kFullDisk:
    case kSlowDisk:
      break;
  }
  return {};
}

std::vector<std::string_view> keys_of(FaultKind kind) {
  std::vector<std::string_view> keys = {"step", "rank"};
  if (!phases_of(kind).empty()) keys.push_back("phase");
  if (kind == kFlip) keys.push_back("where");
  if (kind == kSpike || kind == kSlowDisk) keys.push_back("factor");
  if (kind == kSlow) keys.push_back("seconds");
  if (kind == kGarbage || kind == kSlow || kind == kFullDisk || kind == kSlowDisk)
    keys.push_back("for_steps");
  return keys;
}

FaultPhase phase_in(std::string_view text, FaultKind kind) {
  const auto phase = static_cast<FaultPhase>(place_of("phase", text, kPhaseNames));
  const std::vector<FaultPhase> known = phases_of(kind);
  if (std::find(known.begin(), known.end(), phase) == known.end()) {
    std::vector<std::string_view> names;
    for (const FaultPhase one : known) names.push_back(spelled(one));
    wrong("found phase={} for {}, expected {}", text, spelled(kind), listed(names));
  }
  return phase;
}

void set_defaults(Fault& fault) {
  if (fault.kind == kNan || fault.kind == kInf) fault.phase = kBackward;
  if (fault.kind == kGarbage) fault.for_steps = 0;
}

void set_key(Fault& fault, const Pair& pair) {
  const auto& [key, value] = pair;
  const std::vector<std::string_view> keys = keys_of(fault.kind);
  // The place in a list that contains the key.
  if (std::find(keys.begin(), keys.end(), key) == keys.end())
    place_of(fmt::format("key of {}", spelled(fault.kind)), key, keys);
  if (key == "step") fault.step = whole_number(key, value, 1, kMostSteps);
  if (key == "rank") fault.rank = whole_number(key, value, 0, kMostSteps);
  if (key == "phase") fault.phase = phase_in(value, fault.kind);
  if (key == "where") {
    fault.where = static_cast<FlipWhere>(place_of("place", value, kWhereNames));
  }
  // A disk that writes faster than it can is not a fault; a spike may be small.
  if (key == "factor") fault.factor = real_number(key, value, fault.kind == kSpike ? 1e-6 : 1, kMostFactor);
  if (key == "seconds") fault.seconds = real_number(key, value, 0, kMostSeconds);
  if (key == "for_steps")
    fault.for_steps = whole_number(key, value, fault.kind == kGarbage ? 0 : 1, int64_t{1} << 40);
}

Fault fault_in(FaultKind kind, std::string_view text) {
  Fault fault;
  fault.kind = kind;
  set_defaults(fault);
  bool has_step = false;
  for (const Pair& pair : pairs_of(text)) {
    set_key(fault, pair);
    has_step = has_step || pair.key == "step";
  }
  if (!has_step) wrong("found no step, expected step=N");
  return fault;
}

std::vector<std::pair<FaultKind, double>> kinds_in(std::string_view text) {
  std::vector<std::pair<FaultKind, double>> kinds;
  for (const std::string_view part : split(text, '+')) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) wrong("found \"{}\" in kinds, expected KIND:WEIGHT", part);
    const FaultKind kind = kind_of(part.substr(0, colon));
    if (std::any_of(kinds.begin(), kinds.end(), [&](const auto& other) { return other.first == kind; }))
      wrong("found {} twice in kinds", spelled(kind));
    kinds.emplace_back(kind, real_number(spelled(kind), part.substr(colon + 1), 0, kMostFactor));
  }
  if (std::none_of(kinds.begin(), kinds.end(), [](const auto& one) { return one.second > 0; }))
    wrong("found only weights of 0, expected one above 0");
  return kinds;
}

RandomFaults random_in(std::string_view text) {
  constexpr std::array<std::string_view, 3> kKeys = {"steps", "seed", "kinds"};
  RandomFaults random;
  std::set<std::string_view> given;
  for (const auto& [key, value] : pairs_of(text)) {
    place_of("key of random", key, kKeys);
    if (key == "steps") random.steps = whole_number(key, value, 1, kMostSteps);
    if (key == "seed") random.seed = static_cast<uint64_t>(whole_number(key, value, 0, kMostSteps));
    if (key == "kinds") random.kinds = kinds_in(value);
    given.insert(key);
  }
  if (!given.contains("steps")) wrong("found no steps, expected steps=N");
  if (!given.contains("kinds")) wrong("found no kinds, expected kinds=KIND:WEIGHT+…");
  return random;
}

// The entry of a drawn fault.
std::string entry_of(const Fault& fault) {
  std::string entry = fmt::format("{}@step={},rank={}", spelled(fault.kind), fault.step, fault.rank);
  if (fault.phase) entry += fmt::format(",phase={}", spelled(*fault.phase));
  if (fault.kind == kFlip) entry += fmt::format(",where={}", kWhereNames[static_cast<size_t>(fault.where)]);
  return entry;
}

constexpr uint32_t kDrawStream = 0x696e6a65;  // "inje"

uint32_t below(uint32_t bits, size_t count) {
  return static_cast<uint32_t>(static_cast<uint64_t>(bits) * count >> 32);
}

}  // namespace

std::string_view spelled(FaultKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::string_view spelled(FaultPhase phase) {
  return kPhaseNames[static_cast<size_t>(phase)];
}

bool Fault::changes_numbers() const {
  switch (kind) {
    case kNan:
    case kInf:
    case kSpike:
    case kGarbage:
      return true;
    case kFlip:
      return where == FlipWhere::kWeights || where == FlipWhere::kGradients;
    case kSlow:
    case kStop:
    case kKill:
    case kFullDisk:
    case kSlowDisk:
    case kDrop:
      break;
  }
  return false;
}

std::optional<Fault> RandomFaults::draw(int64_t step, int64_t ranks) const {
  const auto counter = static_cast<uint64_t>(step);
  const auto bits = philox({seed, kDrawStream}, counter), more = philox({seed, kDrawStream}, counter, 1);
  if (static_cast<double>(bits[0]) * 0x1p-32 * static_cast<double>(steps) >= 1) return std::nullopt;
  double sum = 0;
  for (const auto& [kind, weight] : kinds) sum += weight;
  double at = static_cast<double>(bits[1]) * 0x1p-32 * sum;
  Fault fault;
  fault.step = step;
  for (const auto& [kind, weight] : kinds) {
    if (weight <= 0) continue;
    fault.kind = kind;
    if ((at -= weight) < 0) break;
  }
  set_defaults(fault);
  fault.rank = below(bits[2], static_cast<size_t>(ranks));
  if (fault.kind == kFlip) fault.where = static_cast<FlipWhere>(below(bits[3], kRandomWhere));
  // Weights are gathered by some layouts only, and messages of a save may be the run's last.
  std::vector<FaultPhase> phases = phases_of(fault.kind);
  std::erase(phases, kGather);
  if (fault.kind == kDrop) std::erase(phases, kSave);
  if (!phases.empty()) {
    // Faults of the machine may also come between two steps.
    const uint32_t place = below(more[0], phases.size() + (fault.phase ? 0 : 1));
    if (place < phases.size()) fault.phase = phases[place];
  }
  fault.entry = entry_of(fault);
  return fault;
}

InjectPlan read_inject(std::span<const std::string> entries, int64_t total_steps, int64_t ranks,
                       std::vector<std::string>& problems) {
  InjectPlan plan;
  std::set<std::string> seen;
  for (const std::string& entry : entries) {
    try {
      const size_t at = entry.find('@');
      if (at == std::string::npos || at + 1 == entry.size())
        wrong("expected KIND@KEY=VALUE,…, such as nan@step=40,phase=bwd");
      if (!seen.insert(entry).second) wrong("found it twice; give the second one another step");
      const std::string_view name = std::string_view(entry).substr(0, at);
      const std::string_view text = std::string_view(entry).substr(at + 1);
      if (name == "random") {
        plan.random.push_back(random_in(text));
        plan.random.back().entry = entry;
        continue;
      }
      Fault fault = fault_in(kind_of(name), text);
      fault.entry = entry;
      if (total_steps > 0 && fault.step > total_steps)
        wrong("found step={}, expected one of the run's {} steps", fault.step, total_steps);
      if (ranks > 0 && fault.rank >= ranks)
        wrong("found rank={}, expected one of the run's {} ranks, from 0", fault.rank, ranks);
      plan.faults.push_back(std::move(fault));
    } catch (const Wrong& error) {
      problems.push_back(fmt::format("\"{}\": {}", entry, error.what));
    }
  }
  return plan;
}

std::string inject_error(const RunConfig& config) {
  const ParallelTable& parallel = config.parallel;
  const int64_t degrees[] = {parallel.replicate, parallel.shard, parallel.context, parallel.tensor,
                             parallel.pipeline};
  const bool is_open = std::any_of(std::begin(degrees), std::end(degrees), [](int64_t n) { return n < 1; });
  std::vector<std::string> problems;
  read_inject(config.debug.inject, config.training.tokens ? 0 : config.training.steps,
              is_open ? 0 : mesh_of(config).ranks(), problems);
  std::string all;
  for (const std::string& problem : problems) all += (all.empty() ? "" : "; ") + problem;
  return all;
}

}  // namespace strata::config
