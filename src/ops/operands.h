// What a node of each op holds: the positions of its operands, and its attributes. Positions are fixed: an
// optional operand that is not there keeps its place as kNone. The lists with shapes stand in ops.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/attributes.h"
#include "graph/placement.h"
#include "tensor/activation_kind.h"
#include "tensor/dtype.h"

namespace strata::ops {

// --- embedding.cpp
struct EmbeddingAttrs {
  DType dtype = DType::kF32;  // of x
  double scale = 1;
  int64_t padding_id = -1;
  bool operator==(const EmbeddingAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("dtype", name_of(dtype));
    to("scale", scale);
    to("padding_id", padding_id);
  }
};
struct Embedding {
  enum In : int { kTokens, kTable, kPositions, kPositionTable, kVocabStart };
  enum Out : int { kX };
};
struct EmbeddingGradAttrs {
  int64_t rows = 0;  // of the table
  double scale = 1;
  int64_t padding_id = -1;
  int64_t rows_of_part = 0;  // with vocab_start: of each part; the last one may have fewer
  bool operator==(const EmbeddingGradAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("scale", scale);
    to("padding_id", padding_id);
    if (rows_of_part != 0) to("rows_of_part", rows_of_part);
  }
};
struct EmbeddingGrad {
  enum In : int { kDy, kIds, kVocabStart };
  enum Out : int { kDtable };
};

// --- linear.cpp
struct LinearAttrs {
  bool f32_output = false;
  bool operator==(const LinearAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("f32_output", f32_output); }
};
struct Linear {
  enum In : int { kX, kWeight, kBias };
  enum Out : int { kY };
};
struct LinearGradInput {
  enum In : int { kDy, kWeight };
  enum Out : int { kDx };
};
struct LinearGradWeight {
  enum In : int { kDy, kX };
  enum Out : int { kDweight };
};
struct ColumnSums {
  enum In : int { kDy };
  enum Out : int { kSums };
};
struct PackWeight {
  enum In : int { kWeight };
  enum Out : int { kPacked };
};

// --- norm.cpp
// Of the norm and both of its gradients; so LayerNormAttrs.
struct RmsNormAttrs {
  double eps = 1e-5;
  double weight_offset = 0;
  bool operator==(const RmsNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("weight_offset", weight_offset);
  }
};
struct LayerNormAttrs {
  double eps = 1e-5;
  bool operator==(const LayerNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("eps", eps); }
};
struct RmsNorm {
  enum In : int { kX, kWeight, kResidual };
  enum Out : int { kY, kRstd, kH };
};
struct RmsNormGradInput {
  enum In : int { kDy, kH, kRstd, kWeight, kDh };
  enum Out : int { kDx };
};
struct RmsNormGradWeight {
  enum In : int { kDy, kH, kRstd };
  enum Out : int { kDweight };
};
struct LayerNorm {
  enum In : int { kX, kWeight, kBias, kResidual };
  enum Out : int { kY, kMean, kRstd, kH };
};
struct LayerNormGradInput {
  enum In : int { kDy, kH, kMean, kRstd, kWeight, kDh };
  enum Out : int { kDx };
};
struct LayerNormGradWeight {
  enum In : int { kDy, kH, kMean, kRstd };
  enum Out : int { kDweight, kDbias };
};

// --- qk_norm.cpp
struct QkNormAttrs {
  double eps = 1e-5;
  double weight_offset = 0;
  int64_t q_width = 0;  // of the weights, for the gradient that does not read them; 0: that of q
  int64_t k_width = 0;
  bool operator==(const QkNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("weight_offset", weight_offset);
    if (q_width != 0) to("q_width", q_width);
    if (k_width != 0) to("k_width", k_width);
  }
};
struct QkNorm {
  enum In : int { kQkv, kQWeight, kKWeight, kMeans };
  enum Out : int { kY, kRstd };
};
struct QkNormGradInput {
  enum In : int { kDy, kQkv, kRstd, kQWeight, kKWeight, kMeans };
  enum Out : int { kDx };
};
// Widths are those of all ranks together.
using QkMeansAttrs = QkNormAttrs;
struct QkMeans {
  enum In : int { kQkv, kDy, kQWeight, kKWeight };
  enum Out : int { kMeans };
};
struct QkNormGradWeight {
  enum In : int { kDy, kQkv, kRstd };
  enum Out : int { kDqWeight, kDkWeight };
};

// --- constant.cpp
struct ConstantAttrs {
  int64_t elements = 0;
  double number = 0;
  bool operator==(const ConstantAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("elements", elements);
    to("number", number);
  }
};
struct Constant {
  enum Out : int { kValues };
};

// --- rope.cpp
struct RopeTableAttrs {
  int64_t positions = 0;
  std::vector<double> frequencies = {};  // radians a position, one a pair
  double magnitude = 1;
  bool operator==(const RopeTableAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("positions", positions);
    to("frequencies", frequencies);
    to("magnitude", magnitude);
  }
};
struct RopeTable {
  enum Out : int { kTable };
};
struct RopeAttrs {
  int64_t head_dim = 0;
  bool inverse = false;   // turns back
  int64_t first = 0;      // of a head's dimensions, the first that rotates
  bool adjacent = false;  // pair i is (2i, 2i + 1), and not (i, i + half)
  bool operator==(const RopeAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("inverse", inverse);
    if (first != 0) to("first", first);
    if (adjacent) to("adjacent", adjacent);
  }
};
struct Rope {
  enum In : int { kQkv, kTable, kPositions };
  enum Out : int { kRotated };
};

// --- share_heads.cpp
// Of the gradient too.
struct ShareHeadsAttrs {
  graph::Axis axis = {};
  int64_t head_dim = 0;  // of keys and of values
  int64_t copies = 1;    // of each head, among those of all ranks
  int64_t ranks = 1;     // of the axis, on a rank
  bool operator==(const ShareHeadsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("axis", name_of(axis));
    to("head_dim", head_dim);
    to("copies", copies);
    to("ranks", ranks);
  }
};
struct ShareHeads {
  enum In : int { kQ, kKv, kRank };
  enum Out : int { kQkv };
};
struct ShareHeadsGrad {
  enum In : int { kDqkv, kRank };
  enum Out : int { kDq, kDkv };
};

// --- attention.cpp
// Of the gradient and of cached attention too.
struct AttentionAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // of the queries
  double scale = 1;             // of the products of queries and keys
  int64_t window = 0;           // keys that a row sees, itself included; 0: all before it. Needs causal
  double softcap = 0;           // above 0: scores become softcap · tanh(score / softcap) (Gemma 2)
  bool causal = true;           // a row sees no key behind its own
  int64_t bias_zero = 0;        // column of the bias for a key at the row's own place
  int64_t value_dim = 0;        // of a head's values; 0: head_dim
  // A row's window begins with the chunk of `window` keys that it is in. Where keys are counted from 0 alone:
  // of cached attention.
  bool chunked = false;
  int64_t size_of_value() const { return value_dim > 0 ? value_dim : head_dim; }
  bool operator==(const AttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("sequence_length", sequence_length);
    to("scale", scale);
    to("window", window);
    to("softcap", softcap);
    to("causal", causal);
    to("bias_zero", bias_zero);
    if (value_dim != 0) to("value_dim", value_dim);
    if (chunked) to("chunked", chunked);
  }
};
struct Attention {
  enum In : int { kQkv, kKvBegin, kKvEnd, kBias, kSinks };
  enum Out : int { kOut, kLse };
};
struct AttentionGrad {
  enum In : int { kDout, kOut, kLse, kQkv, kKvBegin, kKvEnd, kBias };
  enum Out : int { kDqkv, kDbias };
};
struct CachedAttention {
  enum In : int { kQkv, kKeys, kValues, kPosition, kSlot, kBias, kSinks };
  enum Out : int { kOut, kNewKeys, kNewValues };
};
struct SinkGradAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // rows of a sequence, as lse has them
  bool operator==(const SinkGradAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("sequence_length", sequence_length);
  }
};
struct SinkGrad {
  enum In : int { kDout, kOut, kLse, kSinks };
  enum Out : int { kDsinks };
};

// --- cross_attention.cpp
// Of the gradient and of the cached form too.
struct CrossAttentionAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // of the queries
  double scale = 1;
  double softcap = 0;
  int64_t encoder_length = 0;  // of the keys; 0: as long as the cache
  bool operator==(const CrossAttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("head_dim", head_dim);
    to("sequence_length", sequence_length);
    to("scale", scale);
    to("softcap", softcap);
    if (encoder_length != 0) to("encoder_length", encoder_length);
  }
};
struct CrossAttention {
  enum In : int { kQ, kKv, kKvBegin, kKvEnd };
  enum Out : int { kOut, kLse };
};
struct CrossAttentionGrad {
  enum In : int { kDout, kOut, kLse, kQ, kKv, kKvBegin, kKvEnd };
  enum Out : int { kDq, kDkv };
};
struct CachedCrossAttention {
  enum In : int { kQ, kKeys, kValues, kSlot, kEncoderEnd };
  enum Out : int { kOut };
};
struct StoreCross {
  enum In : int { kKv, kKeys, kValues, kSlot };
  enum Out : int { kNewKeys, kNewValues };
};
struct DocumentEndsAttrs {
  int64_t sequence_length = 0;
  int64_t encoder_length = 0;
  // The axis whose ranks share the rows, but not the keys, of a sequence.
  std::optional<graph::Axis> shared_on = {};
  bool operator==(const DocumentEndsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("sequence_length", sequence_length);
    to("encoder_length", encoder_length);
    if (shared_on) to("shared_on", name_of(*shared_on));
  }
};
struct DocumentEnds {
  enum In : int { kQBegin, kKBegin };
  enum Out : int { kEnds };
};

// --- relative_bias.cpp
// Distances in [first, last].
struct RelativeBiasAttrs {
  int64_t max_distance = 128;
  bool bidirectional = true;
  int64_t first = 0;
  int64_t last = 0;
  int64_t buckets = 0;  // of the table, for the gradient, which does not read it
  bool operator==(const RelativeBiasAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("max_distance", max_distance);
    to("bidirectional", bidirectional);
    to("first", first);
    to("last", last);
    if (buckets != 0) to("buckets", buckets);
  }
};
struct RelativeBias {
  enum In : int { kTable };
  enum Out : int { kBias };
};
struct RelativeBiasGrad {
  enum In : int { kDbias };
  enum Out : int { kDtable };
};

// --- activation.cpp
struct ActivationAttrs {
  ActivationKind kind = ActivationKind::kSilu;
  bool operator==(const ActivationAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("kind", static_cast<int64_t>(kind)); }
};
struct Gated {
  enum In : int { kGateUp };
  enum Out : int { kY };
};
struct GatedGrad {
  enum In : int { kDy, kGateUp };
  enum Out : int { kDgateUp };
};
struct Activation {
  enum In : int { kX };
  enum Out : int { kY };
};
struct ActivationGrad {
  enum In : int { kDy, kX };
  enum Out : int { kDx };
};

// --- elementwise.cpp
struct ScaleAttrs {
  double factor = 1;
  bool operator==(const ScaleAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("factor", factor); }
};
struct Scale {
  enum In : int { kX };
  enum Out : int { kY };
};
struct AddRowAttrs {
  int64_t row = 0;
  bool operator==(const AddRowAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("row", row); }
};
struct AddRow {
  enum In : int { kX, kTable };
  enum Out : int { kY };
};
struct AddRowGradAttrs {
  int64_t rows = 0;  // of the table
  int64_t row = 0;
  bool operator==(const AddRowGradAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("row", row);
  }
};
struct AddRowGrad {
  enum In : int { kDy };
  enum Out : int { kDtable };
};

// --- loss.cpp
struct LinearCrossEntropyAttrs {
  double softcap = 0;
  double target_share = 1;  // of the tokens that have a target, on average; the others cost nothing
  bool operator==(const LinearCrossEntropyAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("softcap", softcap);
    if (target_share != 1) to("target_share", target_share);
  }
};
struct LinearCrossEntropy {
  enum In : int { kX, kWeight, kTargets, kBias };
  enum Out : int { kSum, kCount, kPerToken, kGreedy };
};
struct LinearCrossEntropyTrain {
  enum In : int { kX, kWeight, kWeightOfDx, kTargets, kBias, kSeed };
  enum Out : int { kSum, kCount, kDx, kDweight, kDbias };
};
// Of the statistics and their gradients. The rows of the weight are `vocab_start`'s number of parts of equal
// size; without one they are the whole vocabulary.
struct CrossEntropyAttrs {
  double softcap = 0;
  int64_t vocabulary = 0;     // rows of the whole vocabulary, which targets count
  bool one_gradient = false;  // one node gives the gradients of x and of the weight
  double target_share = 1;    // as above
  bool operator==(const CrossEntropyAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("softcap", softcap);
    to("vocabulary", vocabulary);
    if (one_gradient) to("one_gradient", one_gradient);
    if (target_share != 1) to("target_share", target_share);
  }
};
struct CrossEntropyStatistics {
  enum In : int { kX, kWeight, kTargets, kBias, kVocabStart };
  enum Out : int { kStatistics };
};
struct CrossEntropyLoss {
  enum In : int { kStatistics, kTargets };
  enum Out : int { kSum, kCount, kPerToken, kGreedy };
};
struct CrossEntropyLossGrad {
  enum In : int { kStatistics, kTargets, kSeed };
  enum Out : int { kDstatistics };
};
struct CrossEntropyGradInput {
  enum In : int { kX, kWeight, kWeightOfDx, kTargets, kStatistics, kDstatistics, kBias, kVocabStart };
  enum Out : int { kDx };
};
struct CrossEntropyGradWeight {
  enum In : int { kX, kWeight, kTargets, kStatistics, kDstatistics, kBias, kVocabStart };
  enum Out : int { kDweight, kDbias };
};
struct CrossEntropyGrad {
  enum In : int { kX, kWeight, kWeightOfDx, kTargets, kStatistics, kDstatistics, kBias, kVocabStart };
  enum Out : int { kDx, kDweight, kDbias };
};

// --- vocabulary.cpp
struct VocabStartAttrs {
  graph::Axis axis = {};
  int64_t parts = 1;  // of the vocabulary
  int64_t rows = 0;   // of each part
  int64_t ranks = 1;  // of the axis, on a rank
  bool operator==(const VocabStartAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("axis", name_of(axis));
    to("parts", parts);
    to("rows", rows);
    to("ranks", ranks);
  }
};
struct VocabStart {
  enum In : int { kRank };
  enum Out : int { kStart };
};

// --- softcap.cpp
struct SoftcapAttrs {
  double softcap = 1;
  bool operator==(const SoftcapAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("softcap", softcap); }
};
struct Softcap {
  enum In : int { kX };
  enum Out : int { kY };
};

// --- select.cpp
struct TakeRow {
  enum In : int { kX, kIndex };
  enum Out : int { kRow };
};

}  // namespace strata::ops
