#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "device/encode.h"
#include "program/model_graph.h"
#include "program/program.h"
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

// A node with its kernel, on the way to an instruction.
struct Bound {
  int32_t node;
  device::BoundKernel kernel;
};

// One program while it is made: the graph is final, kernels are bound, addresses are not known yet.
struct Draft {
  Program program;
  std::array<std::vector<Bound>, kSegments> bound;
};

void bind_segment(Draft& draft, Segment segment, device::PlanCache& cache, const CompileOptions& options,
                  bool later) {
  Graph& graph = draft.program.graph;
  std::vector<bool> written(static_cast<size_t>(graph.value_count()), false);
  const Segment source = segment == Segment::kLater ? Segment::kFirst : segment;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (segment_of(node.phase) != source) continue;
    device::BindRequest request{{graph, node}, {}, cache, options.target.spec};
    for (const ValueId output : node.outputs) {
      bool accumulate = false;
      if (output != kNone && is_accumulator(graph.value(output).role)) {
        accumulate = later || written[static_cast<size_t>(output)];
        written[static_cast<size_t>(output)] = true;
      }
      request.accumulate.push_back(accumulate);
    }
    draft.bound[static_cast<size_t>(segment)].push_back(
        {static_cast<int32_t>(i), device::find_binding(options.target.bindings, *node.op).bind(request)});
  }
}

Draft make_draft(const Request& request, const CompileOptions& options, Recompute recompute,
                 int64_t full_layers, device::PlanCache& cache) {
  Draft draft;
  Program& program = draft.program;
  program.request = request;
  program.recompute = recompute;
  program.full_recompute_layers = full_layers;
  program.graph = build_graph(request, options, &program.moments);
  check_placements(program.graph);
  if (request.kind == Kind::kTrain && recompute != Recompute::kNone) {
    recompute_pass(program.graph, [&](int32_t layer) {
      return layer < full_layers             ? Recompute::kFull
             : recompute == Recompute::kFull ? Recompute::kSelective
                                             : recompute;
    });
  }
  if (options.weight_gradients_last) weight_gradients_last_pass(program.graph);
  device::encode_pass(program.graph, options.target.bindings, options.target.spec);
  prune_pass(program.graph);
  for (const Segment segment : {Segment::kSetup, Segment::kEncode, Segment::kFirst, Segment::kUpdate}) {
    bind_segment(draft, segment, cache, options, false);
  }
  if (request.micro_batches > 1 || request.kind == Kind::kEvaluate) {
    bind_segment(draft, Segment::kLater, cache, options, true);
  }
  return draft;
}

// --- Workspace: lifetimes over a planned sequence of instructions

// Values of the workspace that one sequence of instructions touches, with in-place outputs sharing their
// input's buffer.
class WorkspacePlanner {
 public:
  WorkspacePlanner(Program& program, const std::vector<Bound>& sequence)
      : program_(program), sequence_(sequence) {}

  Layout plan() {
    find_lives();
    share_in_place();
    std::vector<Lifetime> lifetimes;
    std::vector<ValueId> owners;
    for (const ValueId id : order_) {
      if (buffer_[id] != id) continue;
      owners.push_back(id);
      lifetimes.push_back(lives_[id]);
    }
    scratch_first_ = lifetimes.size();
    for (size_t i = 0; i < sequence_.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      lifetimes.push_back({sequence_[i].kernel.scratch_bytes, at, at});
    }
    Layout layout = plan_memory(lifetimes);
    std::unordered_map<ValueId, int64_t> offset_of;
    for (size_t i = 0; i < owners.size(); ++i) offset_of[owners[i]] = layout.offsets[i];
    for (const ValueId id : order_) {
      const Lifetime& life = own_lives_[id];
      program_.places[static_cast<size_t>(id)] = {
          id, {offset_of.at(buffer_[id]), Base::kArena}, life.bytes, life.first, life.last};
    }
    return layout;
  }

  // Offset of the scratch of instruction i of the sequence, within the workspace.
  static int64_t scratch_offset(const Layout& layout, size_t sequence_size, size_t i) {
    return layout.offsets[layout.offsets.size() - sequence_size + i];
  }

 private:
  void find_lives() {
    for (size_t i = 0; i < sequence_.size(); ++i) {
      const Node& node = program_.graph.nodes()[static_cast<size_t>(sequence_[i].node)];
      const auto at = static_cast<int32_t>(i);
      for (const auto* ids : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *ids) {
          if (id == kNone || program_.graph.value(id).role != Role::kActivation) continue;
          const auto [life, is_new] =
              lives_.try_emplace(id, Lifetime{program_.graph.value(id).bytes(), at, at});
          life->second.last = at;
          if (is_new) {
            order_.push_back(id);
            buffer_[id] = id;
          }
        }
      }
    }
    own_lives_ = lives_;
  }

  void share_in_place() {
    for (size_t i = 0; i < sequence_.size(); ++i) {
      const Node& node = program_.graph.nodes()[static_cast<size_t>(sequence_[i].node)];
      const auto at = static_cast<int32_t>(i);
      for (const graph::InPlace& pair : node.op->in_place) {
        if (pair.input >= static_cast<int>(node.inputs.size()) ||
            pair.output >= static_cast<int>(node.outputs.size()))
          continue;
        const ValueId input = node.inputs[static_cast<size_t>(pair.input)];
        const ValueId output = node.outputs[static_cast<size_t>(pair.output)];
        if (input == kNone || output == kNone) continue;
        if (!lives_.contains(input) || !lives_.contains(output) || buffer_[output] != output) continue;
        Lifetime& owner = lives_[buffer_[input]];
        if (owner.last != at || owner.bytes != lives_[output].bytes || lives_[output].first != at) continue;
        if (times_read(node, buffer_[input]) > 1)
          continue;  // the kernel reads the buffer through another input too
        owner.last = lives_[output].last;
        buffer_[output] = buffer_[input];
      }
    }
  }

  int times_read(const Node& node, ValueId owner) {
    int count = 0;
    for (const ValueId input : node.inputs) {
      if (input != kNone && buffer_.contains(input) && buffer_[input] == owner) ++count;
    }
    return count;
  }

  Program& program_;
  const std::vector<Bound>& sequence_;
  std::vector<ValueId> order_;
  std::unordered_map<ValueId, Lifetime> lives_;      // of buffers, in-place chains joined
  std::unordered_map<ValueId, Lifetime> own_lives_;  // of values
  std::unordered_map<ValueId, ValueId> buffer_;      // whose memory a value uses
  size_t scratch_first_ = 0;
};

void plan_workspaces(Draft& draft) {
  Program& program = draft.program;
  program.places.assign(static_cast<size_t>(program.graph.value_count()), {});
  for (const auto& segment : draft.bound) {
    for (const Bound& bound : segment)
      program.scratch_peak = std::max(program.scratch_peak, bound.kernel.scratch_bytes);
  }
  // kLater has kFirst's nodes; its scratch may differ, so the larger of both is planned.
  auto& first = draft.bound[static_cast<size_t>(Segment::kFirst)];
  auto& later = draft.bound[static_cast<size_t>(Segment::kLater)];
  for (size_t i = 0; i < later.size(); ++i) {
    const int64_t scratch = std::max(first[i].kernel.scratch_bytes, later[i].kernel.scratch_bytes);
    first[i].kernel.scratch_bytes = later[i].kernel.scratch_bytes = scratch;
  }
  program.workspace = WorkspacePlanner(program, first).plan();
  program.update_workspace =
      WorkspacePlanner(program, draft.bound[static_cast<size_t>(Segment::kUpdate)]).plan();
}

int64_t workspace_bytes(const Draft& draft) {
  int64_t bytes = std::max(draft.program.workspace.bytes, draft.program.update_workspace.bytes);
  for (const Segment segment : {Segment::kSetup, Segment::kEncode}) {
    for (const Bound& bound : draft.bound[static_cast<size_t>(segment)]) {
      bytes = std::max(bytes, align_up(bound.kernel.scratch_bytes, kBufferAlignment));
    }
  }
  return bytes;
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

void lay_out_persistent(ProgramSet& set, std::vector<Draft>& drafts) {
  for (const Draft& draft : drafts) {
    for (ValueId id = 0; id < draft.program.graph.value_count(); ++id) {
      const Value& value = draft.program.graph.value(id);
      if (value.role == Role::kActivation || value.role == Role::kInput || value.role == Role::kCache)
        continue;
      add_persistent(set, value);
    }
  }
  // By role, so that what is alike lies together: parameters first, then gradients, moments, encodings,
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
  int64_t batch = 0;
  for (Draft& draft : drafts) {
    Program& program = draft.program;
    int64_t slot = 0;
    for (ValueId id = 0; id < program.graph.value_count(); ++id) {
      const Value& value = program.graph.value(id);
      if (value.role != Role::kInput) continue;
      program.places[static_cast<size_t>(id)] = {id, {slot, Base::kBatch}, value.bytes(), 0, 0};
      slot += align_up(value.bytes(), kBufferAlignment);
    }
    program.batch_bytes = slot;
    batch = std::max(batch, slot * program.request.micro_batches);
  }
  set.batch_bytes = batch;
  set.persistent_bytes = offset + batch;
}

// Caches outlive a program's segments but not a generation: they lie at the start of the workspace, each at
// the same place in every generating program that has it.
void lay_out_caches(ProgramSet& set, std::vector<Draft>& drafts) {
  set.cache_offset = set.persistent_bytes;
  std::unordered_map<std::string, Place> places;
  for (Draft& draft : drafts) {
    for (ValueId id = 0; id < draft.program.graph.value_count(); ++id) {
      const Value& value = draft.program.graph.value(id);
      if (value.role != Role::kCache) continue;
      const auto [found, is_new] = places.try_emplace(
          value.name, Place{id, {set.cache_offset + set.cache_bytes, Base::kArena}, value.bytes(), 0, 0});
      STRATA_CHECK(found->second.bytes == value.bytes(), "two programs disagree on {}", value.name);
      if (is_new) set.cache_bytes += align_up(value.bytes(), kBufferAlignment);
      draft.program.places[static_cast<size_t>(id)] = found->second;
      draft.program.places[static_cast<size_t>(id)].value = id;
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

std::shared_ptr<ProgramSet> compile_with(const std::vector<Request>& requests, const CompileOptions& options,
                                         Recompute recompute, int64_t full_layers, device::PlanCache& cache) {
  auto set = std::make_shared<ProgramSet>();
  set->options = options;
  std::vector<Draft> drafts;
  for (const Request& request : requests)
    drafts.push_back(make_draft(request, options, recompute, full_layers, cache));
  for (Draft& draft : drafts) plan_workspaces(draft);
  lay_out_persistent(*set, drafts);
  lay_out_caches(*set, drafts);
  set->workspace_offset = set->persistent_bytes;
  set->arena_bytes = set->persistent_bytes;
  for (Draft& draft : drafts) {
    const bool generates =
        draft.program.request.kind != Kind::kTrain && draft.program.request.kind != Kind::kEvaluate;
    const int64_t offset = set->workspace_offset + (generates ? set->cache_bytes : 0);
    set->arena_bytes = std::max(set->arena_bytes, offset + workspace_bytes(draft));
    emit(draft, *set, offset);
    set->programs.push_back(std::move(draft.program));
  }
  return set;
}

}  // namespace

std::shared_ptr<const ProgramSet> compile(const std::vector<Request>& requests,
                                          const CompileOptions& options) {
  device::PlanCache cache;
  auto fits = [&](const ProgramSet& set) {
    return options.memory_budget <= 0 || set.arena_bytes <= options.memory_budget;
  };
  auto refuse = [&](const ProgramSet& set, std::string_view recompute) {
    throw ConfigError(
        "[memory.budget] the program needs {} with {} recompute, of which {} hold weights, gradients and "
        "optimizer state, and {} are allowed; {}lower training.micro_batch_size or training.sequence_length, "
        "take a smaller model, or raise memory.budget",
        human_bytes(static_cast<double>(set.arena_bytes)), recompute,
        human_bytes(static_cast<double>(set.persistent_bytes)),
        human_bytes(static_cast<double>(options.memory_budget)),
        recompute == name_of(Recompute::kFull) ? "" : "leave memory.recompute to \"auto\", ");
  };
  if (options.recompute) {
    const int64_t full = *options.recompute == Recompute::kFull ? options.model.blocks() : 0;
    auto set = compile_with(requests, options, *options.recompute, full, cache);
    if (!fits(*set)) refuse(*set, name_of(*options.recompute));
    return set;
  }
  auto set = compile_with(requests, options, Recompute::kNone, 0, cache);
  if (fits(*set)) return set;
  set = compile_with(requests, options, Recompute::kSelective, 0, cache);
  if (fits(*set)) return set;
  auto least = compile_with(requests, options, Recompute::kFull, options.model.blocks(), cache);
  if (!fits(*least)) refuse(*least, name_of(Recompute::kFull));
  // As few layers as possible in full.
  int64_t low = 1;
  int64_t high = options.model.blocks();
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    auto attempt = compile_with(requests, options, Recompute::kFull, middle, cache);
    if (fits(*attempt)) {
      high = middle;
      least = std::move(attempt);
    } else {
      low = middle + 1;
    }
  }
  return least;
}

}  // namespace strata::program
