#include "parallel/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/suggest.h"

namespace strata::parallel {
namespace {

using enum ActionKind;

// Inputs of the generators; in the papers P, m and v.
struct Sizes {
  int32_t ranks, micro_batches, chunks;
};

// Appends the actions of one rank. Stages are given as chunks of the rank, micro-batches explicitly (add) or
// by running counters (next).
class RankActions {
 public:
  RankActions(const Schedule& schedule, int32_t rank)
      : stages_(schedule.stages_of(rank)),
        micro_batches_(schedule.micro_batches),
        forward_(stages_.size(), 0),
        backward_(stages_.size(), 0),
        weight_grad_(stages_.size(), 0) {}

  void add(ActionKind kind, int32_t chunk, int32_t micro_batch) {
    actions_.push_back({kind, micro_batch, stage(chunk)});
  }
  // Adds the next micro-batch of this kind and chunk, if there are any left. I and B count as one kind.
  void next(ActionKind kind, int32_t chunk) {
    const int32_t micro_batch = counter(kind, chunk)++;
    if (micro_batch < micro_batches_) add(kind, chunk, micro_batch);
  }
  // Adds FB of the next F of one chunk and the next B of the other.
  void next_pair(int32_t forward_chunk, int32_t backward_chunk) {
    const int32_t forward = counter(kForward, forward_chunk)++;
    const int32_t backward = counter(kBackward, backward_chunk)++;
    actions_.push_back({kForwardBackward, forward, stage(forward_chunk), backward, stage(backward_chunk)});
  }
  void append(const Action& action) { actions_.push_back(action); }
  int32_t count(ActionKind kind, int32_t chunk) { return counter(kind, chunk); }
  const Action& last() const { return actions_.back(); }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  int32_t stage(int32_t chunk) const { return stages_[static_cast<size_t>(chunk)]; }
  int32_t& counter(ActionKind kind, int32_t chunk) {
    auto& counters = kind == kForward ? forward_ : kind == kWeightGrad ? weight_grad_ : backward_;
    return counters[static_cast<size_t>(chunk)];
  }

  std::vector<int32_t> stages_;
  int32_t micro_batches_;
  std::vector<int32_t> forward_, backward_, weight_grad_;  // by chunk
  std::vector<Action> actions_;
};

void gpipe(RankActions& out, const Sizes& sizes, int32_t /*rank*/) {
  for (int32_t i = 0; i < sizes.micro_batches; ++i) out.add(kForward, 0, i);
  for (int32_t i = 0; i < sizes.micro_batches; ++i) out.add(kBackward, 0, i);
}

// The steps of one rank over its chunks: micro-batches in groups of P, each group through all chunks in turn.
struct Step {
  int32_t chunk, micro_batch;
};
Step forward_step(const Sizes& sizes, int32_t i) {
  const int32_t group = sizes.ranks * sizes.chunks;
  return {(i / sizes.ranks) % sizes.chunks, i % sizes.ranks + i / group * sizes.ranks};
}
Step backward_step(const Sizes& sizes, int32_t i) {
  const Step step = forward_step(sizes, i);
  return {sizes.chunks - 1 - step.chunk, step.micro_batch};
}

// 1f1b and interleaved: `warm_up` forwards, then one forward and one backward in turn.
void one_forward_one_backward(RankActions& out, const Sizes& sizes, int32_t rank) {
  const int32_t steps = sizes.micro_batches * sizes.chunks;
  const int32_t ahead = (sizes.ranks - 1 - rank) * (sizes.chunks > 1 ? 2 : 1);
  const int32_t warm_up = std::min(ahead + (sizes.chunks - 1) * sizes.ranks, steps);
  const auto add = [&](ActionKind kind, Step step) { out.add(kind, step.chunk, step.micro_batch); };
  // With one chunk, the groups have no effect, and the last need not be full.
  for (int32_t i = 0; i < steps; ++i) {
    add(kForward, forward_step(sizes, i));
    if (i >= warm_up) add(kBackward, backward_step(sizes, i - warm_up));
  }
  for (int32_t i = steps - warm_up; i < steps; ++i) add(kBackward, backward_step(sizes, i));
}

// zb_h1 and interleaved_zb: W follows I by `rank` steps, so that every rank holds as much as rank 0.
void delayed_weight_grads(RankActions& out, const Sizes& sizes, int32_t rank) {
  const int32_t steps = sizes.micro_batches * sizes.chunks;
  const int32_t warm_up = std::min(sizes.ranks - 1 - rank + (sizes.chunks - 1) * sizes.ranks, steps);
  const auto add = [&](ActionKind kind, Step step) { out.add(kind, step.chunk, step.micro_batch); };
  for (int32_t i = 0; i < warm_up; ++i) add(kForward, forward_step(sizes, i));
  for (int32_t i = 0; i < steps; ++i) {
    if (warm_up + i < steps) add(kForward, forward_step(sizes, warm_up + i));
    add(kInputGrad, backward_step(sizes, i));
    if (i >= rank) add(kWeightGrad, backward_step(sizes, i - rank));
  }
  for (int32_t i = std::max(0, steps - rank); i < steps; ++i) add(kWeightGrad, backward_step(sizes, i));
}

void zbv(RankActions& out, const Sizes& sizes, int32_t rank) {
  // With fewer micro-batches the phases keep their lengths, and actions without a micro-batch are omitted.
  const int32_t steps = std::max(2 * sizes.ranks - 1, sizes.micro_batches);
  const int32_t to_turn = sizes.ranks - rank;
  const auto input_and_weight_grad = [&](int32_t chunk) {
    out.next(kInputGrad, chunk);
    out.next(kWeightGrad, chunk);
  };
  for (int32_t i = 0; i < 2 * to_turn - 1; ++i) out.next(kForward, 0);
  for (int32_t i = 0; i < rank; ++i) {
    out.next(kForward, 1);
    out.next(kForward, 0);
  }
  for (int32_t i = 0; i < to_turn; ++i) {
    out.next(kForward, 1);
    input_and_weight_grad(1);
  }
  while (out.count(kForward, 0) < steps || out.count(kForward, 1) < steps) {
    if (out.count(kForward, 0) < steps) out.next(kForward, 0);
    input_and_weight_grad(0);
    out.next(kForward, 1);
    input_and_weight_grad(1);
  }
  for (int32_t i = 0; i < rank; ++i) {
    out.next(kInputGrad, 0);
    out.next(kInputGrad, 1);
  }
  for (int32_t i = 0; i < to_turn; ++i) input_and_weight_grad(0);
  for (const int32_t chunk : {1, 0}) {
    while (out.count(kWeightGrad, chunk) < sizes.micro_batches) out.next(kWeightGrad, chunk);
  }
}

// The times at which a rank's actions of micro-batch 0 begin, other than W; micro-batch i is 6 i later. All
// times differ.
struct Pattern {
  int32_t forward_0, forward_1, input_grad_1, input_grad_0;
};

// v_half and v_min: the pattern for every micro-batch, W first in, first out in the gaps.
void repeated_pattern(RankActions& out, const Sizes& sizes, const Pattern& pattern) {
  struct Placed {
    int32_t time;
    Action action;  // its stage is a chunk
  };
  std::vector<Placed> placed;
  placed.reserve(static_cast<size_t>(sizes.micro_batches) * 4);
  for (int32_t i = 0; i < sizes.micro_batches; ++i) {
    const int32_t at = 6 * i;
    placed.push_back({at + pattern.forward_0, {kForward, i, 0}});
    placed.push_back({at + pattern.forward_1, {kForward, i, 1}});
    placed.push_back({at + pattern.input_grad_1, {kInputGrad, i, 1}});
    placed.push_back({at + pattern.input_grad_0, {kInputGrad, i, 0}});
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.time < b.time; });
  std::deque<Action> waiting;  // W
  const auto place_weight_grad = [&] {
    out.add(kWeightGrad, waiting.front().stage, waiting.front().micro_batch);
    waiting.pop_front();
  };
  int32_t time = 0;
  for (const Placed& next : placed) {
    STRATA_CHECK(next.time >= time, "two actions at time {}", next.time);
    for (; time < next.time && !waiting.empty(); ++time) place_weight_grad();
    out.add(next.action.kind, next.action.stage, next.action.micro_batch);
    if (next.action.kind == kInputGrad) waiting.push_back(next.action);
    time = next.time + 1;
  }
  while (!waiting.empty()) place_weight_grad();
}

void v_half(RankActions& out, const Sizes& sizes, int32_t rank) {
  const int32_t ranks = sizes.ranks, shift = ranks % 2 == 0 ? 3 : 0;
  repeated_pattern(out, sizes,
                   {.forward_0 = 2 * rank,
                    .forward_1 = 3 * ranks - rank - 2,
                    .input_grad_1 = 3 * ranks + shift + 2 * rank - 1,
                    .input_grad_0 = 6 * ranks + shift - rank - 2});
}

void v_min(RankActions& out, const Sizes& sizes, int32_t rank) {
  const int32_t ranks = sizes.ranks, shift = ranks % 3 == 0 ? 2 : 0;
  repeated_pattern(out, sizes,
                   {.forward_0 = rank,
                    .forward_1 = 2 * ranks - rank - 1,
                    .input_grad_1 = 2 * ranks + shift + rank,
                    .input_grad_0 = 4 * ranks + shift - rank - 1});
}

void dualpipev(RankActions& out, const Sizes& sizes, int32_t rank) {
  const int32_t to_turn = sizes.ranks - rank - 1;
  std::deque<Action> waiting;  // W of both chunks
  const auto input_grad = [&](int32_t chunk) {
    out.next(kInputGrad, chunk);
    waiting.push_back({kWeightGrad, out.last().micro_batch, out.last().stage});
  };
  const auto weight_grad = [&] {
    out.append(waiting.front());
    waiting.pop_front();
  };
  for (int32_t i = 0; i < 2 * to_turn; ++i) out.next(kForward, 0);
  for (int32_t i = 0; i < rank + 1; ++i) {
    out.next(kForward, 0);
    out.next(kForward, 1);
  }
  for (int32_t i = 0; i < to_turn; ++i) {
    input_grad(1);
    weight_grad();
    out.next(kForward, 1);
  }
  for (int32_t i = 0; i < sizes.micro_batches - 2 * sizes.ranks + rank + 1; ++i) {
    if (i == 0 && to_turn == 0) {  // this B needs this F
      out.next(kForward, 0);
      out.next(kBackward, 1);
    } else {
      out.next_pair(0, 1);
    }
    out.next_pair(1, 0);
  }
  for (int32_t i = 0; i < to_turn; ++i) {
    out.next(kBackward, 1);
    out.next_pair(1, 0);
  }
  // The later half of these defer their W to the end, when ranks wait for each other.
  const int32_t switches = (rank + 1) / 2;
  for (int32_t i = 0; i < rank + 1; ++i) {
    const bool splits_first = i > switches || (i == switches && rank % 2 == 1);
    const bool splits_second = i >= switches;
    splits_first ? input_grad(1) : out.next(kBackward, 1);
    splits_second ? input_grad(0) : out.next(kBackward, 0);
  }
  for (int32_t i = 0; i < to_turn; ++i) {
    weight_grad();
    input_grad(0);
  }
  while (!waiting.empty()) weight_grad();
}

struct Row {
  ScheduleKind kind;
  void (*generate)(RankActions& out, const Sizes& sizes, int32_t rank);
};

constexpr std::array<Row, 9> kRows = {{
    {{"gpipe", "comparison; holds all micro-batches at the same time", 1, false, ""}, gpipe},
    {{"1f1b", "many micro-batches; holds at most as many as there are ranks", 1, false, ""},
     one_forward_one_backward},
    {{"interleaved", "a bubble of 1/v, for v times the messages", 0, false, "a multiple of the ranks"},
     one_forward_one_backward},
    {{"zb_h1", "a third of 1f1b's bubble at its memory and messages", 1, true, ""}, delayed_weight_grads},
    {{"interleaved_zb", "a bubble of 1/v of zb_h1's at its memory", 0, true, "a multiple of the ranks"},
     delayed_weight_grads},
    {{"zbv", "a sixth of 1f1b's bubble at its memory", 2, true, ""}, zbv},
    {{"v_half", "little more than half of 1f1b's memory", 2, true, ""}, v_half},
    {{"v_min", "little more than a third of 1f1b's memory, if F, I and W take the same time", 2, true, ""},
     v_min},
    {{"dualpipev", "overlap of forward and backward, such as experts' messages under computation", 2, true,
      "at least twice the ranks"},
     dualpipev},
}};

constexpr auto kKinds = [] {
  std::array<ScheduleKind, kRows.size()> kinds{};
  for (size_t i = 0; i < kRows.size(); ++i) kinds[i] = kRows[i].kind;
  return kinds;
}();

[[noreturn]] void refuse_name(const std::string& name, const Words& words) {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kKinds) names.emplace_back(kind.name);
  const auto nearest = nearest_name(name, names);
  throw ConfigError("[{}] found \"{}\", expected one of {}, or a file{}", words.schedule, name,
                    fmt::join(names, ", "), nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

void check_micro_batches(const ScheduleRequest& request, const ScheduleKind& kind, const Words& words) {
  const int32_t ranks = request.ranks, found = request.micro_batches;
  if (kind.needs == "a multiple of the ranks" && found % ranks != 0) {
    const int32_t below = found / ranks * ranks;
    throw ConfigError(
        "[{}] found {} micro-batches for {} ranks: {} needs a multiple of the ranks. Set {} for {}{} "
        "micro-batches, or use zbv or 1f1b",
        words.schedule, found, ranks, kind.name, words.batch, below > 0 ? fmt::format("{} or ", below) : "",
        below + ranks);
  }
  if (kind.needs == "at least twice the ranks" && found < 2 * ranks) {
    throw ConfigError(
        "[{}] found {} micro-batches for {} ranks: {} needs at least two per rank. Set {} for {} or more, "
        "lower {} to at most {}, or use zbv",
        words.schedule, found, ranks, kind.name, words.batch, 2 * ranks, words.ranks, std::max(1, found / 2));
  }
}

// Stages per rank.
int32_t chunks_of(const ScheduleRequest& request, const ScheduleKind& kind, const Words& words) {
  const int32_t found = request.virtual_stages;
  if (kind.chunks == 0) {
    if (found >= 2) return found;
    throw ConfigError("[{}] found {}: {} needs several stages per rank. Use 2 or more, or {} with 1",
                      words.virtual_stages, found, kind.name, kind.splits_backward ? "zb_h1" : "1f1b");
  }
  if (found == 1 || found == kind.chunks) return kind.chunks;
  throw ConfigError(
      "[{}] found {}: {} has {} per rank. Remove the setting, or use interleaved or interleaved_zb",
      words.virtual_stages, found, kind.name, kind.chunks);
}

}  // namespace

std::span<const ScheduleKind> schedule_kinds() {
  return kKinds;
}

const ScheduleKind* find_schedule_kind(std::string_view name) {
  const auto found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const ScheduleKind& kind) { return kind.name == name; });
  return found == kKinds.end() ? nullptr : &*found;
}

Schedule make_schedule(const ScheduleRequest& request, const Words& words) {
  const auto row = std::find_if(kRows.begin(), kRows.end(),
                                [&](const Row& candidate) { return candidate.kind.name == request.name; });
  if (row == kRows.end()) refuse_name(request.name, words);
  if (request.ranks < 1 || request.micro_batches < 1) {
    throw ConfigError("[{}] found {} ranks and {} micro-batches: expected at least 1 of each", words.schedule,
                      request.ranks, request.micro_batches);
  }
  const Sizes sizes{request.ranks, request.micro_batches, chunks_of(request, row->kind, words)};
  if (int64_t{sizes.ranks} * sizes.chunks * sizes.micro_batches > kMostCells) {
    throw ConfigError(
        "[{}] found {} ranks, {} stages per rank and {} micro-batches: more than {} actions of a kind",
        words.schedule, sizes.ranks, sizes.chunks, sizes.micro_batches, kMostCells);
  }
  check_micro_batches(request, row->kind, words);
  Schedule schedule{
      .name = request.name, .stages = sizes.ranks * sizes.chunks, .micro_batches = sizes.micro_batches};
  schedule.rank_of_stage =
      row->kind.chunks == 2 ? folded_stages(sizes.ranks) : looped_stages(schedule.stages, sizes.ranks);
  for (int32_t rank = 0; rank < sizes.ranks; ++rank) {
    RankActions actions(schedule, rank);
    row->generate(actions, sizes, rank);
    schedule.ranks.push_back(actions.take());
  }
  return schedule;
}

}  // namespace strata::parallel
