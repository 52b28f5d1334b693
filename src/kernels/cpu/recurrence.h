// Linear recurrences over rows, by chunks: the state S [K, V] of a value head goes from row to row as
//
//   delta        S ← diag(e^g) S;  u = β (v - Sᵀk);  S ← S + k uᵀ;  o = Sᵀq
//   otherwise    S ← e^g S + β k vᵀ;  o = Sᵀq + D v
//
// and is 0 before a row with position 0. In a chunk with the entry state S and G_i = Σ_{j≤i} g_j, write
// ⟨x_i, y_j⟩ = Σ_c x_ic y_jc e^{G_ic - G_jc}. Then
//
//   A_ij = ⟨k_i, k_j⟩ (i > j),   P_ij = ⟨q_i, k_j⟩ (i ≥ j),   F_i = v_i - (e^{G_i} k_i)ᵀS - Σ_j A_ij u_j,
//   u = β F (without delta: β v),   o_i = (e^{G_i} q_i)ᵀS + Σ_j P_ij u_j,
//   S ← e^G S + Σ_j (e^{G - G_j} k_j) u_jᵀ
//
// (Yang et al. 2024, "Parallelizing linear transformers with the delta rule over sequence length"; Yang et
// al. 2024, "Gated delta networks"; Dao and Gu 2024). No exponent is above 0: decays a head come from the
// differences of G, decays a channel from sums inside blocks of 16 rows and from factors of whole
// blocks, so that no row needs a later one. Sums are fp32; the bits depend on the shape, the
// processor and the rows up to a row, not on threads.
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

struct RecurrenceShape {
  int64_t ranges = 0;                      // runs of rows, each with a separate state before it
  int64_t rows = 0;                        // of a range
  int64_t key_heads = 1, value_heads = 1;  // value head n reads key head n · key_heads / value_heads
  int64_t key_dim = 0, value_dim = 0;
  int64_t width = 0, q_first = 0, k_first = 0, v_first = 0;  // of mixed: columns, and those of head 0
  bool delta = true;
  bool by_channel = false;  // g of each channel of the keys; key_heads = value_heads
  bool l2_norm = false;     // q and k become x · rsqrt(Σ x² + 1e-6)
  float scale = 1.0f;       // of q, after that
  int64_t chunk = 64;
  DType dtype = DType::kF32;  // of mixed, the outputs and their gradients: kF32, kBF16 or kF16
  // Operands of the matmuls that go to outputs and gradients are rounded to bf16; those of states and of the
  // solve never are. A plan sets it, for bf16 rows on a processor with VDPBF16PS.
  bool pairs = false;
};

// Bytes of scratch for a number of threads; more threads than that do not take part in a call.
struct RecurrencePlan {
  RecurrenceShape shape;
  int64_t threads = 1;
  int64_t forward_bytes = 0, backward_bytes = 0, map_bytes = 0, state_grad_bytes = 0;
};
RecurrencePlan plan_recurrence(const RecurrenceShape& shape, const hardware::DeviceSpec& device);

struct RecurrenceInputs {
  const void* mixed = nullptr;         // [ranges · rows, width]
  const float* g = nullptr;            // [ranges · rows, value_heads], or [… , value_heads · key_dim]
  const float* beta = nullptr;         // [ranges · rows, value_heads]
  const float* skip = nullptr;         // D [value_heads]; null: none. Not with delta
  const int32_t* positions = nullptr;  // [ranges · rows]; null: no row begins a document
  const float* before = nullptr;       // [ranges, value_heads · K · V], states before the ranges; null: 0
};

// Scratch is aligned to 64 bytes and keeps nothing between calls. out: [ranges · rows, value_heads · V].
void recurrence_forward(const RecurrencePlan& plan, void* out, const RecurrenceInputs& in, void* scratch);

// Overwritten. dbefore may be null. dlast [ranges, value_heads · K · V]: the gradient of the states after the
// ranges; null: 0.
struct RecurrenceGradients {
  void* dmixed = nullptr;
  float *dg = nullptr, *dbeta = nullptr, *dbefore = nullptr;
};
void recurrence_backward(const RecurrencePlan& plan, const RecurrenceGradients& to, const void* dout,
                         const float* dlast, const RecurrenceInputs& in, void* scratch);

// dskip [value_heads] = Σ over rows and columns of dout · v, added to the stored values if `accumulate`.
void recurrence_skip_gradient(const RecurrenceShape& shape, float* dskip, const void* dout, const void* mixed,
                              bool accumulate);

// map [ranges, value_heads · (M | N)]: a range turns the state S before it into M S + N. M is [K, K], without
// delta a number.
void recurrence_map(const RecurrencePlan& plan, float* map, const RecurrenceInputs& in, void* scratch);
// The gradient of the state before each range that comes from the range's outputs.
void recurrence_state_gradient(const RecurrencePlan& plan, float* dbefore, const void* dout,
                               const RecurrenceInputs& in, void* scratch);

// Maps of all ranges of `sequences`, in order. states [ranges · sequences, heads · K · V].
struct RecurrenceMaps {
  int64_t sequences = 0, ranges = 0;  // of a sequence
  int64_t heads = 1, key_dim = 0, value_dim = 0;
  bool delta = true;
};
// states of a sequence: 0, then M S + N of the range before.
void compose_maps(const RecurrenceMaps& shape, float* states, const float* map);
// dlast of a sequence, from its end: 0, then Mᵀ dlast + dbefore of the range after.
void compose_state_gradients(const RecurrenceMaps& shape, float* dlast, const float* map,
                             const float* dbefore);

// Sequences (ranges of the shape) go on with the states of a cache [entries, value_heads · K · V], in place:
// the first count[s] rows of sequence s, from entry slot[s], or from 0 if position[s] is 0. The outputs of
// other rows are 0. Needs forward_bytes.
struct CachedStates {
  float* states = nullptr;
  const int32_t *position = nullptr, *slot = nullptr, *count = nullptr;
};
void recurrence_cached(const RecurrencePlan& plan, void* out, const CachedStates& cache,
                       const RecurrenceInputs& in, void* scratch);

}  // namespace strata::cpu
