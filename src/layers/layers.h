// The blocks that models are made of. Each makes its parameters and its nodes on the context's mesh:
// column-parallel weights are sharded along "tensor" by outputs, row-parallel ones by inputs, as Megatron-LM
// lays them out (Shoeybi et al. 2019). On a mesh of size one this says nothing and costs nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/ops.h"

namespace strata::layers {

using graph::Graph;
using graph::kNone;
using graph::ValueId;

// What a graph is built for.
enum class Mode {
  kSequences,  // whole sequences: training and evaluation
  kCached,     // a chunk of new tokens against a key–value cache: prefill and decoding
};

// The batch and the settings that every block sees.
struct Context {
  Graph& graph;
  Mode mode = Mode::kSequences;
  DType activations = DType::kF32;
  int64_t sequence_length = 0;     // tokens of one sequence in this program (of one chunk, in kCached)
  int64_t sequences = 0;           // in a micro-batch
  int64_t cache_room = 0;          // tokens that a slot of a cache can hold, kCached only
  int64_t cache_slots = 0;         // texts that a cache can hold; 0: as many as sequences
  bool document_mask = true;       // whether kv_begin is given
  ValueId tokens = kNone;          // i32[N]
  ValueId targets = kNone;         // i32[N], kSequences only
  ValueId positions = kNone;       // i32[N]
  ValueId kv_begin = kNone;        // i32[N], kSequences only
  ValueId cache_position = kNone;  // i32[sequences], kCached only: where in their slots new tokens begin
  ValueId cache_slot = kNone;      // i32[sequences], kCached only
};

// Adds the batch's values to the graph.
void add_batch(Context& context);

struct LinearSpec {
  std::string name = {};  // parameters are NAME.weight and NAME.bias
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool bias = false;
  double init_std = 0.02;
  enum class Parallel { kColumn, kRow } parallel = Parallel::kColumn;
  std::vector<int64_t> segments = {};  // parts of the outputs
};
ValueId linear(Context& context, const LinearSpec& spec, ValueId x);

struct NormSpec {
  std::string name = {};
  int64_t width = 0;
  double eps = 1e-5;
  // kPlainLayer has neither weight nor bias (OLMo).
  enum class Kind { kRms, kLayer, kPlainLayer } kind = Kind::kRms;
  double weight_offset = 0;  // kRms: the weight counts as weight + this, and starts at 1 - this
};
ops::Normed norm(Context& context, const NormSpec& spec, ValueId x, ValueId residual = kNone);

struct AttentionSpec {
  std::string name = {};  // parameters NAME.qkv.*, NAME.out.*
  int64_t width = 0;
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
  double clip_qkv = 0;            // above 0: q, k and v are cut to ± this after their projection
  double scale = 0;               // of scores; 0: 1 / √head_dim
  double softcap = 0;             // ops::AttentionOptions
  int64_t window = 0;             // ops::AttentionOptions
  double init_std = 0.02;
  double out_init_std = 0.02;
};
// QKV projection, norms of q and k, rotary embedding, causal grouped-query attention, output projection.
ValueId attention(Context& context, const AttentionSpec& spec, ValueId x);

struct FfnSpec {
  std::string name = {};  // parameters NAME.up.*, NAME.down.*
  int64_t width = 0;
  int64_t hidden = 0;
  bool bias = false;
  ActivationKind activation = ActivationKind::kSilu;
  bool gated = true;  // f(gate) · up
  double init_std = 0.02;
  double out_init_std = 0.02;
};
ValueId ffn(Context& context, const FfnSpec& spec, ValueId x);

// Where a block's norms stand. f is attention, then the FFN.
enum class Wiring {
  kPreNorm,   // x + f(norm(x)): Llama, GPT-2
  kPostNorm,  // x + norm(f(x)): OLMo 2
  kSandwich,  // x + norm(f(norm(x))): Gemma 2
  kParallel,  // x + attention(norm(x)) + ffn(norm(x)), two norms: GPT-NeoX
};

// A stack of blocks: layers.I.attention, layers.I.ffn and their norms for I below `layers`, then final_norm.
// Norms before f are attention_norm and ffn_norm, norms of its result attention_post_norm and ffn_post_norm.
// The specs' names are filled in.
struct DecoderSpec {
  int64_t layers = 0;
  Wiring wiring = Wiring::kPreNorm;
  NormSpec norm;
  AttentionSpec attention;
  // Where layers differ: window layers have these instead.
  AttentionSpec window_attention = {};
  std::function<bool(int64_t layer)> is_windowed = {};
  FfnSpec ffn;
};
// From the embedded tokens [N, d] to what the head reads.
ValueId decoder(Context& context, const DecoderSpec& spec, ValueId embedded);

// A table [rows, width]; returns the parameter.
ValueId embedding_table(Context& context, const std::string& name, int64_t rows, int64_t width,
                        double init_std);

}  // namespace strata::layers
