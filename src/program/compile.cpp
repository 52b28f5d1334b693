#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "device/encode.h"
#include "program/model_graph.h"
#include "program/program.h"
#include "program/workspace.h"
#include "tensor/arena.h"

namespace strata::program {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;

std::string_view name_of(Segment segment) {
  static constexpr std::string_view kNames[] = {"setup", "encode", "first", "later", "update"};
  return kNames[static_cast<size_t>(segment)];
}

std::string_view name_of(Kind kind) {
  static constexpr std::string_view kNames[] = {"train", "evaluate", "prefill", "decode", "encode"};
  return kNames[static_cast<size_t>(kind)];
}

const Persistent* ProgramSet::find(const std::string& name) const {
  const auto it = persistent_index.find(name);
  return it == persistent_index.end() ? nullptr : &persistent[it->second];
}

const Persistent& ProgramSet::at(const std::string& name) const {
  const Persistent* found = find(name);
  STRATA_CHECK(found != nullptr, "the programs have no {}", name);
  return *found;
}

namespace {

std::string shortage(const ProgramSet& set) {
  const std::string_view recompute = name_of(set.programs.front().recompute);
  return fmt::format(
      "[memory.budget] the program needs {} with {} recompute, of which {} hold weights, gradients and "
      "optimizer state, and {} are allowed; {}lower training.micro_batch_size or training.sequence_length, "
      "take a smaller model, or raise memory.budget",
      human_bytes(static_cast<double>(set.arena_bytes)), recompute,
      human_bytes(static_cast<double>(set.persistent_bytes)),
      human_bytes(static_cast<double>(set.options.memory_budget)),
      recompute == name_of(Recompute::kFull) ? "" : "leave memory.recompute to \"auto\", ");
}

}  // namespace

DoesNotFit::DoesNotFit(std::shared_ptr<const ProgramSet> set)
    : ConfigError(shortage(*set)), set_(std::move(set)) {}

namespace {

bool is_accumulator(Role role) {
  return role == Role::kGradient || role == Role::kMetric;
}

Segment segment_of(Phase phase) {
  switch (phase) {
    case Phase::kSetup:
      return Segment::kSetup;
    case Phase::kEncode:
      return Segment::kEncode;
    case Phase::kUpdate:
      return Segment::kUpdate;
    default:
      return Segment::kFirst;
  }
}

// One program while it is made: kernels are bound, addresses are not known yet.
struct Draft {
  Program program;
  std::array<std::vector<Bound>, kSegments> bound;
  std::vector<WorkspacePlanner> workspaces;  // of a micro-batch, of the update
  bool is_placed = false;                    // values of the workspaces have their offsets in them

  const std::vector<Bound>& segment(Segment which) const { return bound[static_cast<size_t>(which)]; }
};

void bind_segment(Draft& draft, Segment segment, Binder& binder, bool later) {
  const Graph& graph = draft.program.graph;
  std::vector<bool> written(static_cast<size_t>(graph.value_count()), false);
  const Segment source = segment == Segment::kLater ? Segment::kFirst : segment;
  std::vector<bool> adds;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (segment_of(node.phase) != source) continue;
    adds.clear();
    for (const ValueId output : node.outputs) {
      bool accumulate = false;
      if (output != kNone && is_accumulator(graph.value(output).role)) {
        accumulate = later || written[static_cast<size_t>(output)];
        written[static_cast<size_t>(output)] = true;
      }
      adds.push_back(accumulate);
    }
    draft.bound[static_cast<size_t>(segment)].push_back(
        {static_cast<int32_t>(i), binder.bind({graph, node}, adds)});
  }
}

void find_workspaces(Draft& draft) {
  for (const auto& segment : draft.bound) {
    for (const Bound& bound : segment)
      draft.program.scratch_peak = std::max(draft.program.scratch_peak, bound.kernel.scratch_bytes);
  }
  // kLater has kFirst's nodes; its scratch may differ, so the larger of both is planned.
  auto& first = draft.bound[static_cast<size_t>(Segment::kFirst)];
  auto& later = draft.bound[static_cast<size_t>(Segment::kLater)];
  for (size_t i = 0; i < later.size(); ++i) {
    const int64_t scratch = std::max(first[i].kernel.scratch_bytes, later[i].kernel.scratch_bytes);
    first[i].kernel.scratch_bytes = later[i].kernel.scratch_bytes = scratch;
  }
  for (const Segment segment : {Segment::kFirst, Segment::kUpdate})
    draft.workspaces.emplace_back(draft.program.graph, draft.segment(segment));
}

// `program` has its graph as it was built.
std::shared_ptr<Draft> make_draft(Program program, const CompileOptions& options, Recompute recompute,
                                  int64_t full_layers, Binder& binder) {
  auto draft = std::make_shared<Draft>();
  draft->program = std::move(program);
  Graph& graph = draft->program.graph;
  const Request& request = draft->program.request;
  if (request.kind == Kind::kTrain && recompute != Recompute::kNone) {
    recompute_pass(graph, [&](int32_t layer) {
      return layer < full_layers             ? Recompute::kFull
             : recompute == Recompute::kFull ? Recompute::kSelective
                                             : recompute;
    });
  }
  if (options.weight_gradients_last) weight_gradients_last_pass(graph);
  device::encode_pass(graph, options.target.bindings, options.target.spec);
  prune_pass(graph);
  for (const Segment segment : {Segment::kSetup, Segment::kEncode, Segment::kFirst, Segment::kUpdate})
    bind_segment(*draft, segment, binder, false);
  if (request.micro_batches > 1 || request.kind == Kind::kEvaluate)
    bind_segment(*draft, Segment::kLater, binder, true);
  draft->program.places.assign(static_cast<size_t>(graph.value_count()), {});
  find_workspaces(*draft);
  return draft;
}

// Beside what the planned segments need.
int64_t setup_bytes(const Draft& draft) {
  int64_t bytes = 0;
  for (const Segment segment : {Segment::kSetup, Segment::kEncode}) {
    for (const Bound& bound : draft.segment(segment))
      bytes = std::max(bytes, align_up(bound.kernel.scratch_bytes, kBufferAlignment));
  }
  return bytes;
}

// What the workspace takes under the best of layouts.
int64_t least_workspace_bytes(const Draft& draft) {
  int64_t bytes = setup_bytes(draft);
  for (const WorkspacePlanner& workspace : draft.workspaces) bytes = std::max(bytes, workspace.least_bytes());
  return bytes;
}

int64_t workspace_bytes(Draft& draft) {
  Program& program = draft.program;
  if (!draft.is_placed) {
    program.workspace = draft.workspaces[0].plan(program.places);
    program.update_workspace = draft.workspaces[1].plan(program.places);
    draft.is_placed = true;
  }
  return std::max({setup_bytes(draft), program.workspace.bytes, program.update_workspace.bytes});
}

// --- Layout of everything that persists

void add_persistent(ProgramSet& set, const Value& value) {
  const auto [it, is_new] = set.persistent_index.try_emplace(value.name, set.persistent.size());
  if (is_new) {
    set.persistent.push_back({value.name, value.role, value.dtype, value.shape, 0, value.bytes()});
    return;
  }
  // A table may be longer in one program than in another, and then begins alike; a weight may not.
  Persistent& entry = set.persistent[it->second];
  STRATA_CHECK(entry.role == value.role && entry.dtype == value.dtype, "two programs disagree on {}",
               value.name);
  STRATA_CHECK(entry.bytes == value.bytes() || value.role != Role::kParameter, "two programs disagree on {}",
               value.name);
  if (value.bytes() > entry.bytes) {
    entry.bytes = value.bytes();
    entry.shape = value.shape;
  }
}

using Drafts = std::vector<std::shared_ptr<Draft>>;

void lay_out_batches(ProgramSet& set, const Drafts& drafts) {
  for (const auto& draft : drafts) {
    Program& program = draft->program;
    int64_t slot = 0;
    for (ValueId id = 0; id < program.graph.value_count(); ++id) {
      const Value& value = program.graph.value(id);
      if (value.role != Role::kInput) continue;
      program.places[static_cast<size_t>(id)] = {id, {slot, Base::kBatch}, value.bytes(), 0, 0};
      slot += align_up(value.bytes(), kBufferAlignment);
    }
    program.batch_bytes = slot;
    set.batch_bytes = std::max(set.batch_bytes, slot * program.request.micro_batches);
  }
}

void lay_out_persistent(ProgramSet& set, const Drafts& drafts) {
  for (const auto& draft : drafts) {
    for (ValueId id = 0; id < draft->program.graph.value_count(); ++id) {
      const Value& value = draft->program.graph.value(id);
      if (value.role == Role::kActivation || value.role == Role::kInput || value.role == Role::kCache)
        continue;
      add_persistent(set, value);
    }
  }
  // By role, so that what is alike lies together: parameters first, then gradients, states, encodings,
  // tables.
  std::vector<size_t> order(set.persistent.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return set.persistent[a].role < set.persistent[b].role; });
  int64_t offset = 0;
  for (const size_t i : order) {
    set.persistent[i].offset = offset;
    offset += align_up(set.persistent[i].bytes, kBufferAlignment);
  }
  set.batch_offset = offset;
  lay_out_batches(set, drafts);
  set.persistent_bytes = offset + set.batch_bytes;
}

// Caches outlive a program's segments but not a generation: they lie at the start of the workspace, each at
// the same place in every generating program that has it.
void lay_out_caches(ProgramSet& set, const Drafts& drafts) {
  set.cache_offset = set.persistent_bytes;
  std::unordered_map<std::string, Place> places;
  for (const auto& draft : drafts) {
    Program& program = draft->program;
    for (ValueId id = 0; id < program.graph.value_count(); ++id) {
      const Value& value = program.graph.value(id);
      if (value.role != Role::kCache) continue;
      const auto [found, is_new] = places.try_emplace(
          value.name, Place{id, {set.cache_offset + set.cache_bytes, Base::kArena}, value.bytes(), 0, 0});
      STRATA_CHECK(found->second.bytes == value.bytes(), "two programs disagree on {}", value.name);
      if (is_new) set.cache_bytes += align_up(value.bytes(), kBufferAlignment);
      program.places[static_cast<size_t>(id)] = found->second;
      program.places[static_cast<size_t>(id)].value = id;
    }
  }
}

// --- Instructions

void emit(Draft& draft, const ProgramSet& set, int64_t workspace_offset) {
  Program& program = draft.program;
  for (ValueId id = 0; id < program.graph.value_count(); ++id) {
    const Value& value = program.graph.value(id);
    Place& place = program.places[static_cast<size_t>(id)];
    if (value.role == Role::kActivation) {
      place.at.offset += workspace_offset;
    } else if (value.role != Role::kInput && value.role != Role::kCache) {
      place = {id, {set.at(value.name).offset, Base::kArena}, value.bytes(), 0, 0};
    }
  }
  for (size_t s = 0; s < kSegments; ++s) {
    const auto segment = static_cast<Segment>(s);
    const std::vector<Bound>& bounds = draft.bound[s];
    for (size_t i = 0; i < bounds.size(); ++i) {
      const Bound& bound = bounds[i];
      const Node& node = program.graph.nodes()[static_cast<size_t>(bound.node)];
      Instruction instruction{bound.kernel.run,
                              bound.kernel.plan.get(),
                              bound.kernel.instantiate,
                              static_cast<uint32_t>(program.operands.size()),
                              0,
                              bound.node};
      for (const auto* ids : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *ids) {
          program.operands.push_back(id == kNone ? Operand{} : program.places[static_cast<size_t>(id)].at);
        }
      }
      Operand scratch;
      if (bound.kernel.scratch_bytes > 0) {
        scratch = {workspace_offset, Base::kArena};
        if (segment == Segment::kFirst || segment == Segment::kLater) {
          scratch.offset += WorkspacePlanner::scratch_offset(program.workspace, bounds.size(), i);
        } else if (segment == Segment::kUpdate) {
          scratch.offset += WorkspacePlanner::scratch_offset(program.update_workspace, bounds.size(), i);
        }
      }
      program.operands.push_back(scratch);
      instruction.operand_count = static_cast<uint32_t>(program.operands.size()) - instruction.first_operand;
      program.segments[s].push_back(instruction);
      program.plans.push_back(bound.kernel.plan);
    }
  }
}

// --- The choice of recompute

// The programs with one choice of recompute, and where everything lies.
struct Candidate {
  std::shared_ptr<ProgramSet> set;  // without its programs
  Drafts drafts;                    // as requested
  Recompute recompute = Recompute::kNone;
  int64_t full_layers = 0;
};

// Where the workspace of a program begins: behind the caches, where it generates.
int64_t workspace_offset(const ProgramSet& set, const Draft& draft) {
  const Kind kind = draft.program.request.kind;
  return set.workspace_offset + (kind == Kind::kTrain || kind == Kind::kEvaluate ? 0 : set.cache_bytes);
}

// Makes candidates. Graphs are built once, what does not train is lowered once, and equal nodes of all
// candidates share their kernels: another candidate costs the passes and the memory plan of what trains.
class Compiler {
 public:
  Compiler(const std::vector<Request>& requests, const CompileOptions& options)
      : options_(options), binder_(options.target) {
    built_.reserve(requests.size());
    for (const Request& request : requests) {
      Program program;
      program.request = request;
      program.graph = build_graph(request, options, &program.states);
      check_placements(program.graph);
      if (request.kind == Kind::kTrain) {
        built_.push_back(std::move(program));
        fixed_.push_back(nullptr);
      } else {
        built_.emplace_back();
        fixed_.push_back(make_draft(std::move(program), options, Recompute::kNone, 0, binder_));
      }
    }
  }

  // nullopt when it takes more than `limit` bytes; 0 is no limit. What cannot fit by the sum of what lives at
  // once is not laid out.
  std::optional<Candidate> attempt(Recompute recompute, int64_t full_layers, int64_t limit) {
    Candidate candidate{std::make_shared<ProgramSet>(), fixed_, recompute, full_layers};
    for (size_t i = 0; i < built_.size(); ++i) {
      if (!candidate.drafts[i])
        candidate.drafts[i] = make_draft(built_[i], options_, recompute, full_layers, binder_);
    }
    ProgramSet& set = *candidate.set;
    lay_out_persistent(set, candidate.drafts);
    lay_out_caches(set, candidate.drafts);
    set.workspace_offset = set.arena_bytes = set.persistent_bytes;
    persistent_bytes_ = set.persistent_bytes;
    for (const auto& draft : candidate.drafts) {
      if (limit > 0 && workspace_offset(set, *draft) + least_workspace_bytes(*draft) > limit)
        return std::nullopt;
    }
    for (const auto& draft : candidate.drafts) {
      set.arena_bytes = std::max(set.arena_bytes, workspace_offset(set, *draft) + workspace_bytes(*draft));
      if (limit > 0 && set.arena_bytes > limit) return std::nullopt;
    }
    return candidate;
  }

  // Of the last candidate; recompute does not change it.
  int64_t persistent_bytes() const { return persistent_bytes_; }

  // The programs of a candidate; nothing else is made of this compiler afterwards.
  std::shared_ptr<const ProgramSet> finish(Candidate candidate) {
    ProgramSet& set = *candidate.set;
    // Other candidates have moved what the drafts share.
    set.cache_bytes = 0;
    set.programs.reserve(candidate.drafts.size());
    lay_out_batches(set, candidate.drafts);
    lay_out_caches(set, candidate.drafts);
    for (const auto& draft : candidate.drafts) {
      draft->program.recompute = candidate.recompute;
      draft->program.full_recompute_layers = candidate.full_layers;
      emit(*draft, set, workspace_offset(set, *draft));
      set.programs.push_back(std::move(draft->program));
    }
    set.options = options_;
    return candidate.set;
  }

 private:
  const CompileOptions& options_;
  Binder binder_;
  std::vector<Program> built_;  // graphs of what trains, as they were built; others are empty
  Drafts fixed_;                // what does not train; others are nullptr
  int64_t persistent_bytes_ = 0;
};

}  // namespace

std::shared_ptr<const ProgramSet> compile(const std::vector<Request>& requests,
                                          const CompileOptions& options) {
  Compiler compiler(requests, options);
  const int64_t budget = options.memory_budget;
  // Whatever it needs; refused where that is too much.
  const auto demand = [&](Recompute recompute, int64_t full_layers) {
    Candidate candidate = *compiler.attempt(recompute, full_layers, 0);
    if (budget > 0 && candidate.set->arena_bytes > budget)
      throw DoesNotFit(compiler.finish(std::move(candidate)));
    return candidate;
  };
  const int64_t blocks = options.model.blocks();
  if (options.recompute) {
    const int64_t full = *options.recompute == Recompute::kFull ? blocks : 0;
    return compiler.finish(demand(*options.recompute, full));
  }
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
    if (auto candidate = compiler.attempt(recompute, 0, budget))
      return compiler.finish(std::move(*candidate));
    if (compiler.persistent_bytes() > budget) break;
  }
  Candidate least = demand(Recompute::kFull, blocks);
  // As few layers as possible in full.
  int64_t low = 1;
  int64_t high = blocks;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (auto candidate = compiler.attempt(Recompute::kFull, middle, budget)) {
      high = middle;
      least = std::move(*candidate);
    } else {
      low = middle + 1;
    }
  }
  return compiler.finish(std::move(least));
}

}  // namespace strata::program
