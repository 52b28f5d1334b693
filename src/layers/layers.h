// The blocks that models are made of. Models determine the initialization (models/parametrization.h).
// Each block makes its parameters and its nodes on the graph's mesh: column-parallel weights are sharded
// along the tensor axis by outputs, row-parallel ones by inputs, as Megatron-LM lays them out (Shoeybi et al.
// 2019); the batch is split along the replicate and shard axes, its sequences along the context axis. On a
// mesh of size one this has no effect and no cost.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "layers/moe_spec.h"
#include "layers/words.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/router/router.h"
#include "ops/temper/temper.h"
#include "tensor/activation_kind.h"
#include "tensor/batch_column.h"

namespace strata::layers {

using graph::Axis;
using graph::Graph;
using graph::kNone;
using graph::ValueId;

// What a graph is built for.
enum class Mode {
  kSequences,       // whole sequences: training and evaluation
  kCached,          // a chunk of new tokens against a key–value cache: prefill and decoding
  kEncoderPrefill,  // an encoder's text, whose keys and values go to the caches that a decoder reads
};

// What one stage of a pipeline has of a model, and what passes between it and others on other ranks. Layers
// are counted through, an encoder's before a decoder's.
struct LayerRange {
  int64_t first = 0, end = 0;  // layers [first, end)
  bool has_embedding = true, has_head = true;
  // Whether the stage receives the values before its first layer, and sends those after its last. If not, the
  // neighbouring stage is on the same rank or does not exist.
  bool receives = false, sends = false;
  // Filled in as the stage is built: [N, d], the residual stream, and an encoder's output for a decoder.
  std::vector<ValueId> received = {}, sent = {};
};

// How ranks that share the rows of a sequence attend to each other's keys (ops/context_attention).
enum class ContextKind : uint8_t {
  kAllGather,  // all keys and values are put together on every rank
  kRing,       // keys and values go round, and each rank reads those of one rank after the other
  kUlysses,    // each rank has whole sequences for a share of the heads
};

// How ranks shard the experts of a layer (parallel.expert): `ranks` of them each have the same number of
// experts; these ranks are along the last axes of the mesh with that many ranks together. Each expert is
// sharded over `tensor` ranks: one, or all of the tensor axis, which is then excluded from those axes.
// `capacity`: capacity relative to the balanced share, as in ops/expert_dispatch; nullopt: enough for nearly any
// random routing.
struct ExpertLayout {
  int64_t ranks = 1, tensor = 1;
  std::optional<double> capacity = {};
  int64_t node_ranks = 0;  // above 0: ranks per node; tokens are sent to nodes first
};
// The axes of the expert ranks. Throws ConfigError if no axes have that many ranks.
std::vector<Axis> axes_of(const ExpertLayout& layout, const graph::Mesh& mesh, const Words& words = {});

// Sizes of a program's rows. N tokens: sequences · length, row-major.
struct RowSizes {
  int64_t length = 0;          // tokens of one sequence (of one chunk, in kCached)
  int64_t sequences = 0;       // in a micro-batch
  int64_t idle = 0;            // the last of each sequence: no tokens of it, they fill it up for the ranks
  int64_t encoder_length = 0;  // tokens per sequence of the decoder's encoder (capacity of its caches)
  int64_t target_length = 0;   // of the sequences that targets are of; 0: length
  int64_t cache_capacity = 0;  // tokens per sequence in a cache, kCached only
  int64_t cache_slots = 0;     // texts that a cache can hold; 0: as many as sequences
};

// What blocks are built as.
struct Settings {
  DType activations = DType::kF32;
  bool document_mask = true;    // whether kKvBegin is given
  bool counts_samples = false;  // whether kSamples is given, kSequences only
  // Where the tensor axis has several ranks: between blocks each holds a part of the rows (Korthikanti et al.
  // 2022), not all of them.
  bool sequence_parallel = true;
  // Where the context axis has several ranks: each holds a part of the rows of every sequence, as
  // graph::Cut::sequence has it, not all of them.
  bool share_sequences = false;
  ContextKind context_kind = ContextKind::kAllGather;
  // Whether blocks with experts add the losses that keep these balanced, and count the tokens of each.
  bool trains_experts = false;
  // Of models with an indexer (layers/indexer.h): attention to all keys, from which the indexer learns,
  // or to the keys that the indexer chooses.
  enum class Indexer : uint8_t { kDense, kSparse } indexer = Indexer::kSparse;
  bool trains_indexer = false;  // whether its loss is added
  ExpertLayout expert_layout = {};
  // Above 0: attention finds the greatest scores of its heads, which updates scale down to this (clip_scores).
  double score_limit = 0;
  // Whether layers that predict further tokens are built, where the model has any: they are trained, and
  // nothing else reads them.
  bool predicts = true;
};

// Values that blocks read; kNone: the mode has them not.
struct Inputs {
  PerColumn<ValueId> batch{kNone};
  ValueId chunk_begins = kNone;    // i32[N], kSequences only: as kKvBegin, of the row's chunk of its document
  ValueId kv_end = kNone;          // i32[N], not causal: where it ends; kNone: with the sequence
  ValueId cross_kv_end = kNone;    // i32[N], kSequences only: where the encoder's document ends
  ValueId cache_position = kNone;  // i32[sequences], kCached only: cached tokens before the new ones
  ValueId cache_slot = kNone;      // i32[sequences], kCached and kEncoderPrefill
  ValueId cache_count =
      kNone;  // i32[sequences], kCached only: new tokens among those of the chunk; new_tokens()
  ValueId encoder_end = kNone;  // i32[sequences], kCached only: tokens of the text in the cache
};

// Results of blocks besides hidden states.
struct Results {
  // Losses, each in terms of the main one (graph::WeightedLoss::in_main_terms).
  std::vector<ValueId> losses = {};
  // i32[N, count], the keys chosen by the indexer of the last layer that has one (ops/sparse_attention).
  ValueId chosen = kNone;
  // Sums of the loads of several layers, with MoeSpec::pool_layers.
  ops::RouterSumsOf pooled = {kNone, kNone};
  int64_t pooled_layers = 0;
};

// What every block sees.
struct Context {
  Graph& graph;
  Mode mode = Mode::kSequences;
  bool causal = true;       // a row sees no later ones
  bool of_encoder = false;  // this is the encoder's side of a decoder's context
  RowSizes rows = {};
  Settings settings = {};
  Inputs inputs = {};
  Results results = {};
  // The stages that this rank has, ascending; nullptr: the whole model.
  std::vector<LayerRange>* stages = nullptr;
  Words words = {};
};

// Adds the batch columns that a graph reads (Graph::column) and, once per step, the per-step parameters.
void add_batch(Context& context);
// Given a value with an entry per token, returns the entries for the rows that this rank has of the residual
// stream between blocks.
ValueId rows_of_stream(Context& context, ValueId of_all);
// All rows of the residual stream, as every shard of a weight reads them; the shards' gradients are summed.
ValueId gathered(Context& context, ValueId stream);
// Sets kv_end, so that rows see later ones of their document.
void make_bidirectional(Context& context);
// Sets chunk_begins for attention in chunks of `size` tokens.
void make_chunks(Context& context, int64_t size);
// Inputs::cache_count, which only layers with a state read: attention may compute rows after the last token.
ValueId new_tokens(Context& context);
// The encoder's side of a decoder's context: its tokens as a separate batch, with bidirectional attention.
Context encoder_of(const Context& context);

struct LinearSpec {
  std::string name = {};      // parameters are NAME.weight and NAME.bias
  graph::ParameterRole role;  // of the weight; a bias is kBias, but for attention's
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool bias = false;
  enum class Parallel {
    kColumn,      // reads hidden states, returns a shard of the outputs
    kRow,         // reads such a shard, returns hidden states
    kReplicated,  // reads and returns hidden states: every rank has the whole weight
  } parallel = Parallel::kColumn;
  std::vector<int64_t> segments = {};  // parts of the outputs
  ops::LinearAttrs attrs = {};
};
ValueId linear(Context& context, const LinearSpec& spec, ValueId x);
// linear() of kColumn where x is gathered() already, for several projections of one x.
ValueId projected(Context& context, const LinearSpec& spec, ValueId x);
// Only the weight, for other uses than a projection.
ValueId projection_weight(Context& context, const LinearSpec& spec);
// [sequences, capacity, width] of the activations' type, kCached only. by_heads: ranks that shard heads shard
// it.
ValueId cache(Context& context, const std::string& name, int64_t capacity, int64_t width,
              bool by_heads = true);

struct NormSpec {
  std::string name = {};
  bool is_final = false;  // the head reads its result
  int64_t hidden_size = 0;
  double eps = 1e-5;
  // kPlainLayer has neither weight nor bias (OLMo).
  enum class Kind { kRms, kLayer, kPlainLayer } kind = Kind::kRms;
  double weight_offset = 0;  // kRms: the weight counts as weight + this, and starts at 1 - this
};
ops::Normed norm(Context& context, const NormSpec& spec, ValueId x, ValueId residual = kNone);

struct AttentionSpec {
  std::string name = {};  // parameters NAME.qkv.*, NAME.out.*
  int64_t hidden_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool bias = false;      // of q, k and v
  bool out_bias = false;  // of the output projection
  // RMS norms of queries and keys before rotation, NAME.q_norm and NAME.k_norm.
  enum class QkNorm { kAbsent, kHead, kProjection } qk_norm = QkNorm::kAbsent;
  double norm_eps = 1e-6;         // of those
  double norm_weight_offset = 0;  // of those
  ValueId rope_table = kNone;     // kNone: no rotary embedding
  ValueId distance_bias = kNone;  // of scores by distance; kNone: none (ops::AttentionOptions::bias)
  int64_t distance_zero = 0;
  double clip_qkv = 0;          // above 0: q, k and v are cut to ± this after projection and norms
  double scale = 0;             // of scores; 0: 1 / √head_dim
  double softcap = 0;           // ops::AttentionAttrs
  int64_t window = 0;           // ops::AttentionAttrs
  bool chunked = false;         // ops::AttentionAttrs: the window is the row's chunk, counted in its document
  bool sinks = false;           // NAME.sinks: ops::AttentionOptions
  bool adjacent_pairs = false;  // ops::RopeAttrs
  bool plain_qk_norm = false;   // RMS norms of heads of q and k after rotation, without weights
  ops::TemperAttrs temper = {};  // of queries, if it has a floor
  bool output_gate = false;      // attended values times a sigmoid of NAME.gate.*, element by element
};
// QKV projection, norms of q and k, rotary embedding, grouped-query attention, output projection.
ValueId attention(Context& context, const AttentionSpec& spec, ValueId x);
// Has updates scale the rows of the parameters that the graph has from number `first` to `end` on, by the greatest scores of
// their block. `rows`: of the whole projection, a segment each; a parameter that is a part of it has those of its segments.
// Does nothing if the block's attention has found none.
void clip_scores(Context& context, size_t first, size_t end, const ops::GreatestScores& found,
                 int64_t kv_heads, const std::vector<graph::Parameter::ScoreClip::Heads>& rows);
// Projects the heads of any kind of attention, [N, inputs], back to hidden states: NAME.out.*.
struct AttentionOutSpec {
  std::string name = {};
  int64_t inputs = 0, hidden_size = 0;
  bool bias = false;
};
ValueId attention_out(Context& context, const AttentionOutSpec& spec, ValueId attended);

// Like attention(), with keys and values of an encoder's output, [sequences · encoder_length, d]; parameters
// NAME.q.*, NAME.kv.*, NAME.out.*. No norms, rotation, bias of scores or window. In kCached `encoded` is not
// read: keys and values are in caches.
ValueId cross_attention(Context& context, const AttentionSpec& spec, ValueId x, ValueId encoded);
// Puts the keys and values that cross_attention of this name reads into their caches, kEncoderPrefill only.
void store_cross(Context& context, const AttentionSpec& spec, ValueId encoded);

struct FfnSpec {
  std::string name = {};  // parameters NAME.up.*, NAME.down.*
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool bias = false;
  ActivationKind activation = ActivationKind::kSilu;
  bool gated = true;                               // f(gate) · up
  double gate_multiplier = 1, out_multiplier = 1;  // of the gate and of the result
};
ValueId ffn(Context& context, const FfnSpec& spec, ValueId x);

// A mixture of experts in the place of an FFN (moe.cpp): each token passes k of the experts, chosen by a
// router, and the shared one if there is one. Parameters NAME.router.weight, NAME.experts.up.weight and
// NAME.experts.down.weight (all experts, consecutively), NAME.shared.up.*, NAME.shared.down.*,
// NAME.shared.gate.weight; of kTwoLevel NAME.router_groups.weight; with biases NAME.router.bias,
// NAME.experts.up.bias and NAME.experts.down.bias.
struct MoeLayer {
  const MoeSpec& spec;
  const FfnSpec& ffn;  // that it stands for: its name, width and activation
  int64_t number = 0;  // of the layer in the graph, by which random numbers and metrics go
};
ValueId moe(Context& context, const MoeLayer& layer, ValueId x);
// Call after the last layer: adds the loss of pool_layers.
void end_of_experts(Context& context, const MoeSpec& spec);

// Position of a block's norms. f is attention, then the FFN.
enum class NormPlacement {
  kPreNorm,    // x + f(norm(x)): Llama, GPT-2
  kPostNorm,   // x + norm(f(x)): OLMo 2
  kSandwich,   // x + norm(f(norm(x))): Gemma 2
  kParallel,   // x + attention(norm(x)) + ffn(norm(x)), two norms: GPT-NeoX
  kNormOfSum,  // norm(x + f(x)), and no norm at the end: BERT
};

// A layer's mixer: what exchanges information between its tokens (layers/mixers.h).
enum class Mixer : uint8_t {
  kAttention,
  kDelta,             // gated delta net, or Kimi delta attention
  kStateSpace,        // Mamba-2
  kShortConvolution,  // LFM2
  kParallel,          // attention and a state space in parallel, whose results are added (Falcon-H1)
  kAbsent,            // the layer is only an FFN (Nemotron-H)
};
// What a layer consists of: most have a mixer and then an FFN.
struct LayerKind {
  Mixer mixer = Mixer::kAttention;
  bool has_ffn = true;
  bool operator==(const LayerKind&) const = default;
};

// A stack of blocks: layers.I.attention, layers.I.ffn and their norms for I below `layers`, then final_norm.
// Norms before f are attention_norm and ffn_norm, norms of its result (kNormOfSum: of the sum)
// attention_post_norm and ffn_post_norm. If the stack reads an encoder, cross_norm and cross are between
// attention and FFN; kPreNorm only. The specs' names are set, starting with `prefix`.
struct StackSpec {
  std::string prefix = {};
  int64_t layers = 0;
  int64_t first_number = 0;  // of its layers in the graph, by which recompute and reports go
  NormPlacement norm_placement = NormPlacement::kPreNorm;
  double residual_multiplier = 1;  // of what blocks add to the residual stream; kPreNorm only
  // Factors on the inputs and results of attention and of its parallel mixer; Mixer::kParallel only.
  struct Multipliers {
    double attention_in = 1, attention_out = 1, mixer_in = 1, mixer_out = 1;
  } multipliers = {};
  NormSpec norm;
  AttentionSpec attention;
  // Replaces `attention` if set.
  std::function<ValueId(Context&, int64_t layer, const std::string& name, ValueId x)> other_attention = {};
  // Where layers differ. By layer; empty: all have attention and an FFN.
  std::vector<LayerKind> kinds = {};
  // The mixers of kinds that are not attention, named layers.I.mixer.
  std::function<ValueId(Context&, Mixer, const std::string& name, ValueId x)> other_mixer = {};
  // The placement of norms in layers with such a mixer, if it is another.
  std::optional<NormPlacement> other_mixer_norms = {};
  // Window layers have these instead.
  AttentionSpec window_attention = {};
  std::function<bool(int64_t layer)> is_windowed = {};
  std::function<bool(int64_t layer)> is_unrotated = {};  // layers whose attention has no rope_table
  FfnSpec ffn;
  MoeSpec moe = {};         // of layers that have experts instead of the FFN
  bool is_encoder = false;  // of a decoder: its last norm feeds no head
  bool reads_encoder = false;
  AttentionSpec cross = {};

  LayerKind kind(int64_t layer) const {
    return kinds.empty() ? LayerKind{} : kinds[static_cast<size_t>(layer)];
  }
  NormPlacement placement(int64_t layer) const {
    return kind(layer).mixer == Mixer::kAttention ? norm_placement
                                                  : other_mixer_norms.value_or(norm_placement);
  }
  bool has_experts(int64_t layer) const { return is_encoder ? moe.at_encoder(layer) : moe.at(layer); }
};
// The residual stream between two blocks, with the last f's result not yet added. The norm that reads both
// adds them, so that hidden states are read and written once per block.
struct Stream {
  ValueId update = kNone, rest = kNone;  // rest is kNone before the first block
};
// Layers [first, end) of the stack. `encoded`: cross_attention's.
Stream blocks(Context& context, const StackSpec& spec, int64_t first, int64_t end, Stream stream,
              ValueId encoded = kNone);
// The input of the head, or of a decoder: hidden states after the last norm.
ValueId end_of_stack(Context& context, const StackSpec& spec, Stream stream);
// The hidden states as one value.
ValueId joined(Context& context, Stream stream);
// Hidden states that another rank sends.
ValueId received(Context& context, std::string name, int64_t width);
// An indexer's choice that another rank sends, Results::chosen.
ValueId received_choice(Context& context, std::string name, int64_t count);
// What a decoder's stack reads of an encoder, of all its layers, into the caches; kEncoderPrefill only.
void store_encoder(Context& context, const StackSpec& spec, ValueId encoded);

// A table [rows, width]; returns the parameter. Tables of the vocabulary (kEmbedding, kHead) are sharded
// along the tensor axis by rows, which need not divide; biases by distance by their columns, the heads.
ValueId embedding_table(Context& context, const std::string& name, graph::ParameterRole role, int64_t rows,
                        int64_t width);
// A number for each row of such a table, with the placement of the table's rows.
ValueId vocabulary_bias(Context& context, const std::string& name, ValueId table);

struct EmbeddingSpec {
  double scale = 1;
  int64_t padding_id = -1;         // ops::EmbeddingOptions
  ValueId position_table = kNone;  // kNone: positions are not looked up
  ValueId tokens = kNone;          // i32[N]; kNone: the batch's
};
// Embeds tokens as hidden states.
ValueId embedding(Context& context, ValueId table, const EmbeddingSpec& spec = {});

}  // namespace strata::layers
