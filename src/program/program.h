// The step program: flat instructions with addresses, for one kind of work at one shape. Several programs
// share one set of weights and one arena (ProgramSet). Everything is decided here; the executor only calls.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "device/call_list.h"
#include "graph/op.h"
#include "hardware/device_spec.h"
#include "models/model.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "optim/optimizer.h"
#include "program/memory_plan.h"
#include "program/passes.h"
#include "program/row_views.h"
#include "program/script.h"
#include "program/slots.h"
#include "program/statistics.h"
#include "quantize/delayed.h"
#include "quantize/recipe.h"

namespace strata::program {

// Base of an operand's offset: the arena; the batch buffer of the current micro-batch; the entry of the
// program's first pool, followed by those of the other pools.
using device::Base;
inline constexpr Base kInArena{1}, kInBatch{2}, kInFirstPool{3};
inline constexpr size_t kMostPools = 24;
inline constexpr size_t kBases = static_cast<size_t>(kInFirstPool) + kMostPools;
constexpr Base base_of_pool(size_t pool) {
  return static_cast<Base>(static_cast<size_t>(kInFirstPool) + pool);
}
constexpr bool is_in_pool(Base base) {
  return base >= kInFirstPool;
}
constexpr size_t pool_of(Base base) {
  return static_cast<size_t>(base) - static_cast<size_t>(kInFirstPool);
}
using Operand = device::Location;

struct Instruction {
  device::Kernel run = nullptr;  // nullptr: a communicator carries it out
  const void* plan = nullptr;
  device::Instantiate instantiate = nullptr;  // of the plan, by each executor; nullptr: run takes the plan
  device::Finish finish = nullptr;            // on the communication queue: ends what run has started
  uint32_t first_operand = 0;
  uint32_t operand_count = 0;
  int32_t node = 0;         // index in the program's graph; with the segment's name a stable id
  uint32_t first_wait = 0;  // in Program::waits
  uint32_t wait_count = 0;
  uint32_t adds = 0;  // bit o: output o is added to, not overwritten
  graph::Queue queue = graph::Queue::kCompute;
  bool signals = false;  // an instruction of another queue waits for it
};

// A communication instruction of the update that needs nothing from the update: it starts during the last
// action of the micro-batches.
struct Early {
  int32_t instruction = 0;  // of the update
  int32_t before = 0;       // the instruction of that action before which it starts
  int32_t after = -1;       // one of that action on the communication queue which must be done; −1: none
};

// A message that this rank of a pipeline sends to another for a micro-batch, or receives from it. The values
// are stored in the entries of a pool.
struct Message {
  bool sends = false;
  // Sent at the end of the actions of this segment and chunk; received before them.
  SegmentAt at = {};
  int32_t peer = 0;  // on the pipeline axis
  size_t pool = 0;
  std::vector<graph::ValueId> values = {};
};

// A receive, and the action of the schedule before which it starts.
struct Receive {
  int32_t before = 0;   // an action of the schedule
  int32_t message = 0;  // of the program
  int32_t micro_batch = 0;
};

// One value's place: for printing and for reaching values by name.
struct Place {
  graph::ValueId value = graph::kNone;
  Operand at;
  int64_t bytes = 0;
  // Between which instructions a value of the workspace lives: in the consecutive lists of a micro-batch's
  // segments, or in the update's for values that only the update uses; 0, 0 for persistent values.
  int32_t first = 0, last = 0;
};

struct Pipeline;  // pipeline.h

enum class Kind : uint8_t {
  kTrain,
  kEvaluate,
  kPrefill,
  kDecode,
  kEncoderPrefill,  // an encoder's tokens, whose keys and values go to the caches of a decoder
};
std::string_view name_of(Kind kind);

// What to build a program for.
struct Request {
  Kind kind = Kind::kTrain;
  int64_t sequences = 1;        // of a micro-batch
  int64_t sequence_length = 1;  // tokens of a sequence; of a chunk in kPrefill
  // For an encoder next to the decoder: tokens of a sequence, and the capacity of the caches made from it.
  int64_t encoder_length = 0;
  bool document_mask = true;
  int64_t micro_batches = 1;    // in a step; the number of batch buffers
  bool per_token_loss = false;  // kEvaluate: also the loss of each token, and whether it is the most probable
  double target_share = 1;      // of the sequences' tokens that have a target, on average: a part of the cost
  int64_t idle_rows = 0;        // the last of each sequence, which only fill it up to what ranks can share
  Script order = {};            // of the micro-batches' actions, as make_script takes it
  // kTrain: the options' pipeline with a schedule of another number of micro-batches; nullptr: the options'.
  std::shared_ptr<const Pipeline> pipeline = {};
};

struct Program {
  Request request;
  Script script;  // a step
  graph::Graph graph;
  // By chunk and segment; then the list that overwrites accumulators and the list that adds to them, which is
  // empty if no action accumulates. Segments that no micro-batch has are those of chunk 0.
  template <typename List>
  using ByList = std::vector<std::array<std::array<List, kVariants>, kSegments>>;
  ByList<std::vector<Instruction>> segments = ByList<std::vector<Instruction>>(1);
  std::vector<Operand> operands;  // inputs, outputs and scratch of each instruction in a row
  std::vector<int32_t> waits;     // of the instructions: indices in their own list
  std::vector<Early> early;       // in the order in which they start
  std::vector<Message> messages;  // of a rank of a pipeline
  std::vector<Receive> receives;  // in the order in which they start
  std::vector<Place> places;      // by value id; absent for values that no instruction touches
  RowViews views;                 // values stored within others
  std::vector<std::shared_ptr<const void>> plans;  // targets of the instructions' plan pointers
  std::vector<Pool> pools;                         // empty: segments pass values in the workspace
  Layout workspace;                                // of the segments of a micro-batch
  Layout update_workspace, encode_workspace;
  int64_t batch_bytes = 0;           // of one batch buffer
  int64_t scratch_peak = 0;          // largest scratch of one instruction
  std::vector<optim::State> states;  // kTrain: of the optimizers
  std::vector<Statistic> statistics;
  Recompute recompute = Recompute::kNone;
  int64_t full_recompute_layers = 0;

  int32_t chunks() const { return static_cast<int32_t>(segments.size()); }
  template <typename Lists>
  static auto& list_at(Lists& lists, const SegmentAt& at, bool accumulates) {
    return lists[static_cast<size_t>(at.chunk)][static_cast<size_t>(at.segment)][accumulates ? 1 : 0];
  }
  const std::vector<Instruction>& segment(const SegmentAt& at, bool accumulates = false) const {
    return list_at(segments, at, accumulates);
  }
  const std::vector<Instruction>& list_of(const Action& action) const {
    return segment({action.segment, action.chunk}, action.accumulates);
  }
  const graph::Node& node_of(const Instruction& instruction) const {
    return graph.nodes()[static_cast<size_t>(instruction.node)];
  }
  // Whether it runs in each action of its segment. Those of loops run where the unexpected happens, and are
  // no part of a cost.
  bool is_expected(const Instruction& instruction) const { return node_of(instruction).loop == graph::kNone; }
  std::span<const Operand> operands_of(const Instruction& instruction) const {
    return std::span(operands).subspan(instruction.first_operand, instruction.operand_count);
  }
  std::span<const int32_t> waits_of(const Instruction& instruction) const {
    return std::span(waits).subspan(instruction.first_wait, instruction.wait_count);
  }
  // The last action of the micro-batches; nullptr if no update follows it.
  const Action* before_update() const;
  size_t micro_batch_instructions() const;
  int64_t pool_bytes() const;  // of all pools
};

// The instruction at an index into the consecutive lists of a micro-batch's segments.
struct InstructionAt {
  SegmentAt segment = {};
  size_t index = 0;
};
InstructionAt instruction_at(const Program& program, size_t place);

// Names of the settings in messages: plain words, unless the caller has keys for them.
struct Words : layers::Words {
  std::string_view memory_budget = "memory budget", recompute = "recompute";
  std::string_view overlap_chunks = "overlap chunks", recipe = "recipe";
  std::string_view gather = "gather";
};

// Matmuls in 8 or 4 bits (precision_pass.h).
struct Precision {
  quantize::Recipe recipe;
  quantize::PartialSums sums = quantize::PartialSums::kF32;
  // ZeRO puts codes together, not weights: never, where shards end on block boundaries, or always (else a ConfigError).
  enum class Gathers : uint8_t {
    kWeights,
    kCodesWherePossible,
    kCodes
  } gathers = Gathers::kCodesWherePossible;
  // The weights whose matmuls stay in the type of activations, of those that recipes take.
  std::function<bool(const std::string& name, const graph::Parameter&)> keeps;
  // Rows go to experts on other ranks as the codes that these multiply, not as activations.
  bool dispatches_codes = false;
  int64_t history = quantize::kDelayedHistory;  // steps, of a recipe that is delayed
};

struct CompileOptions {
  models::ModelConfig model;
  DType activations = DType::kF32;
  std::shared_ptr<const Precision> precision = {};  // of programs that train; nullptr: all in `activations`
  optim::RuleOf rule_of;                            // needed for kTrain
  int64_t memory_budget = 0;                        // bytes for the arena; 0: no limit
  // nullopt: the least recompute with which the arena fits the budget.
  std::optional<Recompute> recompute;
  Backward backward = Backward::kCombined;
  int64_t cache_capacity = 0;  // tokens per key–value cache, for kPrefill and kDecode
  int64_t cache_slots = 1;     // sequences in it; at least as many as a program has sequences
  device::Target target;       // the device that runs it; need not be this machine
  // The ranks that run the programs together. A request's sequences are those of one part of the batch; what
  // writes a text is run by all of them alike.
  graph::Mesh mesh = graph::Mesh::of_one();
  bool sequence_parallel = true;                                       // with a tensor axis
  layers::ContextKind context_kind = layers::ContextKind::kAllGather;  // with a context axis
  // Of models that have one: dense while it warms up, all else being frozen.
  layers::Settings::Indexer indexer = layers::Settings::Indexer::kSparse;
  layers::ExpertLayout experts = {};  // of models that have any
  int zero = 0;                       // the stage of ZeRO along the shard axis (graph/zero.h)
  bool reshard_after_forward = true;  // stage 3: backward puts parameters together again
  bool gathers_narrow = true;         // weights that are only read in bf16 travel in it (narrow.h)
  int64_t prefetch = 0;               // stage 3: number of layers by which gathers precede their use
  int64_t overlap_chunks = 1;         // with sequence_parallel: parts of the rows (program/row_chunks.h)
  DType reduce_dtype = DType::kF32;   // what sums of gradients are sent as
  double score_limit = 0;  // kTrain; above 0: of heads, by their queries and keys (optim/score_clip)
  bool statistics = true;  // kTrain: has instructions that measure values (program/statistics.h)
  // With a pipeline axis: which stages the programs are for; what writes a text has none.
  std::shared_ptr<const Pipeline> pipeline = {};
  Words words = {};
};

// Address of a value that outlives a segment: parameters, gradients, optimizer states, packed weights,
// tables, per-step parameters.
struct Persistent {
  std::string name;
  graph::Role role = graph::Role::kParameter;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct ProgramSet {
  CompileOptions options;
  std::vector<Program> programs;  // as requested
  std::vector<Persistent> persistent;
  std::unordered_map<std::string, size_t> persistent_index;
  int64_t persistent_bytes = 0;
  int64_t batch_offset = 0, batch_bytes = 0;  // all buffers
  int64_t cache_offset = 0, cache_bytes = 0;  // key–value caches; overlaid on the training workspace
  int64_t workspace_offset = 0;
  int64_t arena_bytes = 0;

  const Persistent* find(const std::string& name) const;
  const Persistent& at(const std::string& name) const;  // a missing name is a bug
};

// The arena exceeds the budget even with the least memory that the options allow, which `set` shows. The
// message names the changes that would make it fit.
class DoesNotFit : public ConfigError {
 public:
  // `budget_from`: where the budget comes from if the program chose it, "nine tenths of the memory that is free".
  explicit DoesNotFit(std::shared_ptr<const ProgramSet> set, std::string_view budget_from = {});
  const std::shared_ptr<const ProgramSet>& set() const { return set_; }

 private:
  std::shared_ptr<const ProgramSet> set_;
};

// Builds, differentiates, rewrites, plans and lowers; in the least memory that the options allow where the
// budget does not hold it.
struct Compiled {
  std::shared_ptr<const ProgramSet> set;
  bool fits = true;
};
Compiled compile_any(const std::vector<Request>& requests, const CompileOptions& options);
// The same. Throws DoesNotFit.
std::shared_ptr<const ProgramSet> compile(const std::vector<Request>& requests,
                                          const CompileOptions& options);

}  // namespace strata::program
