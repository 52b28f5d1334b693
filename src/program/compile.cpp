#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "device/encode.h"
#include "graph/localize.h"
#include "ops/causal_convolution/causal_convolution.h"
#include "program/collectives.h"
#include "program/draft.h"
#include "program/expert_passes.h"
#include "program/layout.h"
#include "program/model_graph.h"
#include "program/narrow.h"
#include "program/pipeline.h"
#include "program/precision_pass.h"
#include "program/program.h"
#include "program/row_chunks.h"

namespace strata::program {

using graph::Graph;

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

const Action* Program::before_update() const {
  const auto update = std::find_if(script.begin(), script.end(),
                                   [](const Action& action) { return action.segment == Segment::kUpdate; });
  return update == script.begin() || update == script.end() ? nullptr : &*std::prev(update);
}

size_t Program::micro_batch_instructions() const {
  size_t count = 0;
  for (const SegmentAt& at : in_order_of_micro_batch(chunks())) count += segment(at).size();
  return count;
}

int64_t Program::pool_bytes() const {
  int64_t bytes = 0;
  for (const Pool& pool : pools) bytes += pool.bytes();
  return bytes;
}

InstructionAt instruction_at(const Program& program, size_t place) {
  for (const SegmentAt& at : in_order_of_micro_batch(program.chunks())) {
    if (place < program.segment(at).size()) return {at, place};
    place -= program.segment(at).size();
  }
  return {};
}

namespace {

std::string shortage(const ProgramSet& set, std::string_view budget_from) {
  const std::string_view recompute = name_of(set.programs.front().recompute);
  const Words& words = set.options.words;
  return fmt::format(
      "[{0}] the program needs {1} with {2} recompute, of which {3} hold weights, gradients and optimizer "
      "state, and {4} are allowed{8}; {5}lower {6} or {7}, take a smaller model, or raise {0}",
      words.memory_budget, human_bytes(static_cast<double>(set.arena_bytes)), recompute,
      human_bytes(static_cast<double>(set.persistent_bytes)),
      human_bytes(static_cast<double>(set.options.memory_budget)),
      recompute == name_of(Recompute::kFull) ? "" : fmt::format("leave {} to \"auto\", ", words.recompute),
      words.micro_batch, words.sequence_length, budget_from.empty() ? "" : fmt::format(" ({})", budget_from));
}

}  // namespace

DoesNotFit::DoesNotFit(std::shared_ptr<const ProgramSet> set, std::string_view budget_from)
    : ConfigError(shortage(*set, budget_from)), set_(std::move(set)) {}

namespace {

const std::shared_ptr<const Pipeline>& pipeline_for_request(const Request& request,
                                                            const CompileOptions& options) {
  return request.pipeline != nullptr ? request.pipeline : options.pipeline;
}

// `program` has its graph as it was built.
std::shared_ptr<Draft> make_draft(Program program, const CompileOptions& options, Recompute recompute,
                                  int64_t full_layers, Binder& binder) {
  auto draft = std::make_shared<Draft>();
  draft->program = std::move(program);
  draft->backward = options.backward;
  draft->pipeline = pipeline_for_request(draft->program.request, options);
  Graph& graph = draft->program.graph;
  const Request& request = draft->program.request;
  const bool gathers_again = options.zero == 3 && options.reshard_after_forward;
  const bool shares_rows = options.mesh.size(graph::Axis::kTensor) > 1 && options.sequence_parallel;
  if (request.kind == Kind::kTrain) add_expert_passes(graph, PassesOf::kBackward, options.backward);
  if (request.kind == Kind::kTrain && (recompute != Recompute::kNone || gathers_again || shares_rows)) {
    const auto of_layer = [&](int32_t layer) {
      return layer < full_layers             ? Recompute::kFull
             : recompute == Recompute::kFull ? Recompute::kSelective
                                             : recompute;
    };
    recompute_pass(graph, of_layer, gathers_again);
  }
  add_expert_passes(graph, PassesOf::kForward, options.backward);
  dispatch_early_pass(graph);
  graph::localize(graph);
  if (request.kind == Kind::kTrain && options.statistics)
    draft->program.statistics =
        statistics_pass(graph, {.micro_batches = request.micro_batches,
                                .width = options.model.hidden_size,
                                .last_layer = static_cast<int32_t>(options.model.blocks()) - 1,
                                .is_sequential = is_sequential(draft->program.script)});
  device::encode_pass(graph, options.target.bindings, options.target.spec);
  narrow_pass(graph, options.rule_of, options.gathers_narrow);
  group_collectives_pass(graph, options.prefetch);
  prune_pass(graph);
  if (request.kind == Kind::kTrain && shares_rows)
    cut_rows_pass(graph, draft->program.views, options.overlap_chunks, options.words);
  bind_segments(*draft, binder);
  return draft;
}

// --- The choice of recompute

// The programs with one choice of recompute, and all their addresses.
struct Candidate {
  std::shared_ptr<ProgramSet> set;  // without its programs
  Drafts drafts;                    // as requested
  Recompute recompute = Recompute::kNone;
  int64_t full_layers = 0;
};

// Start of a program's workspace: after the caches if the program generates.
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
      const bool trains = request.kind == Kind::kTrain;
      ModelGraph model = build_graph(request, options);
      program.segments.resize(static_cast<size_t>(model.chunks));
      program.script = make_script({.trains = trains,
                                    .backward = options.backward,
                                    .micro_batches = static_cast<int32_t>(request.micro_batches),
                                    .chunks = model.chunks},
                                   trains && options.pipeline != nullptr
                                       ? order_of(*pipeline_for_request(request, options), options.backward)
                                       : request.order);
      program.graph = std::move(model.graph);
      program.states = std::move(model.states);
      if (trains && options.precision != nullptr) {
        const auto histories =
            precision_pass(program.graph, *options.precision, request.sequence_length, options.words);
        program.states.insert(program.states.end(), histories.begin(), histories.end());
      }
      program.messages = std::move(model.messages);
      if (trains) {
        built_.push_back(std::move(program));
        fixed_.push_back(nullptr);
      } else {
        built_.emplace_back();
        fixed_.push_back(make_draft(std::move(program), options, Recompute::kNone, 0, binder_));
      }
    }
  }

  // Returns nullopt if it takes more than `limit` bytes; 0 means no limit. If the sum of simultaneously live
  // values does not fit, no layout is tried.
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

  // Persistent bytes of the last candidate; recompute does not change them.
  int64_t persistent_bytes() const { return persistent_bytes_; }

  // The programs of a candidate; nothing else is made of this compiler afterwards.
  std::shared_ptr<const ProgramSet> finish(const Candidate& candidate) {
    ProgramSet& set = *candidate.set;
    // Other candidates have changed the state that drafts share.
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

namespace {

// If this holds, sums and products of sizes stay far below 64 bits, and nothing overflows afterwards.
void check_magnitude(const Request& request, const CompileOptions& options) {
  constexpr double kMost = 0x1p60;
  const models::ModelConfig& model = options.model;
  const auto refuse = [&](double bytes, std::string_view what) {
    throw ConfigError("[program] {} would take {:.1e} bytes, more than any machine addresses", what, bytes);
  };
  const auto sequences = static_cast<double>(request.sequences);
  const auto length = static_cast<double>(request.sequence_length);
  const auto source = static_cast<double>(request.encoder_length);
  const auto width = static_cast<double>(model.hidden_size + model.q_width() + 2 * model.kv_width() +
                                         3 * model.intermediate_size);
  const double row =
      4 * (static_cast<double>(model.blocks()) * width * 8 + 3 * static_cast<double>(model.vocab_size));
  if (const double bytes = sequences * (length + source) * row; !(bytes < kMost)) {
    refuse(bytes, fmt::format("{} sequences of {:g} tokens ({}, {})", request.sequences, length + source,
                              options.words.micro_batch, options.words.sequence_length));
  }
  if (model.positions == models::Positions::kRelative) {
    const double longest = std::max(length, source);
    const double bytes = 4 * static_cast<double>(model.heads) * longest * longest;
    if (!(bytes < kMost)) refuse(bytes, fmt::format("the distances between {:g} tokens", longest));
  }
  const double cache = 8 * static_cast<double>(model.blocks()) * static_cast<double>(model.kv_width()) *
                       static_cast<double>(options.cache_capacity) * static_cast<double>(options.cache_slots);
  if (!(cache < kMost)) refuse(cache, fmt::format("a key-value cache of {} tokens", options.cache_capacity));
}

}  // namespace

namespace {

// Devices whose tables lack the ops of other mixers than attention refuse the families that have such.
void require_mixers(const CompileOptions& options) {
  const auto is_convolution = [](const device::Binding& row) {
    return row.op == &ops::CausalConvolution::def;
  };
  const std::span<const device::Binding> table = options.target.bindings;
  if (!options.model.has_states() || std::any_of(table.begin(), table.end(), is_convolution)) return;
  throw ConfigError(
      "[device.kind] found {}, which has no kernels yet for the layers of {} ({}); expected cpu",
      options.target.spec.kind, options.model.family->name, models::blocks_of(options.model).attention);
}

}  // namespace

Compiled compile_any(const std::vector<Request>& requests, const CompileOptions& options) {
  require_mixers(options);
  for (const Request& request : requests) check_magnitude(request, options);
  Compiler compiler(requests, options);
  const int64_t budget = options.memory_budget;
  const auto fits = [&](const Candidate& candidate) {
    return budget == 0 || candidate.set->arena_bytes <= budget;
  };
  const int64_t blocks = options.model.blocks() + options.model.predict_layers;
  if (options.recompute) {
    const int64_t full = *options.recompute == Recompute::kFull ? blocks : 0;
    Candidate only = *compiler.attempt(*options.recompute, full, 0);
    const bool holds = fits(only);
    return {compiler.finish(only), holds};
  }
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
    if (auto candidate = compiler.attempt(recompute, 0, budget)) return {compiler.finish(*candidate), true};
    if (compiler.persistent_bytes() > budget) break;
  }
  Candidate least = *compiler.attempt(Recompute::kFull, blocks, 0);
  if (!fits(least)) return {compiler.finish(least), false};
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
  return {compiler.finish(least), true};
}

std::shared_ptr<const ProgramSet> compile(const std::vector<Request>& requests,
                                          const CompileOptions& options) {
  Compiled compiled = compile_any(requests, options);
  if (!compiled.fits) throw DoesNotFit(std::move(compiled.set));
  return std::move(compiled.set);
}

}  // namespace strata::program
