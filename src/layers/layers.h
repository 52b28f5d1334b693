// The blocks that models are made of. Each makes its parameters and its nodes on the context's mesh:
// column-parallel weights are sharded along "tensor" by outputs, row-parallel ones by inputs, as Megatron-LM
// lays them out (Shoeybi et al. 2019). On a mesh of size one this says nothing and costs nothing.
#pragma once

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
  enum class Kind { kRms, kLayer } kind = Kind::kRms;
};
ops::Normed norm(Context& context, const NormSpec& spec, ValueId x, ValueId residual = kNone);

struct AttentionSpec {
  std::string name = {};  // parameters NAME.qkv.*, NAME.out.*
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool bias = false;
  ValueId rope_table = kNone;  // kNone: no rotary embedding
  double init_std = 0.02;
  double out_init_std = 0.02;
};
// QKV projection, rotary embedding, causal grouped-query attention, output projection.
ValueId attention(Context& context, const AttentionSpec& spec, ValueId x);

struct FfnSpec {
  std::string name = {};  // parameters NAME.up.*, NAME.down.*
  int64_t width = 0;
  int64_t hidden = 0;
  bool bias = false;
  enum class Kind { kSwiglu, kGeluTanh } kind = Kind::kSwiglu;
  double init_std = 0.02;
  double out_init_std = 0.02;
};
ValueId ffn(Context& context, const FfnSpec& spec, ValueId x);

// A stack of pre-norm blocks: layers.I.attention_norm, .attention, .ffn_norm, .ffn for I below `layers`, then
// final_norm. The specs' names are filled in.
struct DecoderSpec {
  int64_t layers = 0;
  NormSpec norm;
  AttentionSpec attention;
  FfnSpec ffn;
};
// From the embedded tokens [N, d] to what the head reads.
ValueId decoder(Context& context, DecoderSpec spec, ValueId embedded);

// A table [rows, width]; returns the parameter.
ValueId embedding_table(Context& context, const std::string& name, int64_t rows, int64_t width,
                        double init_std);

}  // namespace strata::layers
