// Sparse attention relative to dense causal attention of the same shapes, measured in turn in the same process.
// Counters are medians: `of_dense`, the seconds of selection and of attention forward and backward by those of dense
// attention forward and backward; `selection`, `forward` and `backward`, their shares of the sparse seconds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/median.h"
#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/indexer_loss.h"
#include "kernels/cpu/key_selection.h"
#include "kernels/cpu/measure.h"
#include "kernels/cpu/sparse_attention.h"
#include "tensor/arena.h"
#include "used_seconds.h"

namespace strata::cpu {
namespace {

constexpr int64_t kHeadDim = 192, kValueDim = 128, kIndexHeads = 4, kIndexSize = 64;

struct Operands {
  SparseAttentionPlan sparse;
  KeySelectionPlan selection;
  IndexerLossPlan loss;
  AttentionPlan dense;
  Arena q, kv, dq, dkv, out, dout, index_q, index_k, index_dq, index_dk, scratch;
  std::vector<float> weights, dweights, lse, mass;
  std::vector<int32_t> chosen, targets;
  int64_t k_bytes;

  Operands(int64_t rows, int64_t heads, int64_t count, DType dtype) {
    const int64_t width = heads * (kHeadDim + kValueDim), bytes = size_of(dtype);
    const float scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
    const hardware::DeviceSpec device = describe_device(compute_threads());
    sparse = plan_sparse_attention({.sequences = 1,
                                    .q_len = rows,
                                    .kv_len = rows,
                                    .count = count,
                                    .heads = heads,
                                    .kv_heads = heads,
                                    .head_dim = kHeadDim,
                                    .value_dim = kValueDim,
                                    .scale = scale,
                                    .dtype = dtype,
                                    .q_stride = heads * kHeadDim,
                                    .k_stride = width,
                                    .v_stride = width,
                                    .kv_batch_stride = rows * width},
                                   device);
    dense = plan_attention({.q_len = rows,
                            .kv_len = rows,
                            .heads = heads,
                            .kv_heads = heads,
                            .head_dim = kHeadDim,
                            .value_dim = kValueDim,
                            .scale = scale,
                            .dtype = dtype,
                            .q_stride = heads * kHeadDim,
                            .k_stride = width,
                            .v_stride = width,
                            .out_stride = heads * kValueDim,
                            .kv_batch_stride = rows * width},
                           device);
    const IndexerShape indexer{.sequences = 1,
                               .q_len = rows,
                               .kv_len = rows,
                               .heads = kIndexHeads,
                               .size = kIndexSize,
                               .count = count,
                               .scale = 0.0625f,
                               .dtype = dtype,
                               .kv_batch_stride = rows * kIndexSize};
    selection = plan_key_selection(indexer, device);
    loss = plan_indexer_loss({.rows = indexer}, device);
    k_bytes = heads * kHeadDim * bytes;
    q = filled(rows * heads * kHeadDim, dtype, 1);
    kv = filled(rows * width, dtype, 2);
    dout = filled(rows * heads * kValueDim, dtype, 3);
    index_q = filled(rows * kIndexHeads * kIndexSize, dtype, 4);
    index_k = filled(rows * kIndexSize, dtype, 5);
    index_dq = Arena(index_q.size());
    index_dk = Arena(index_k.size());
    dq = Arena(q.size());
    dkv = Arena(kv.size());
    out = Arena(dout.size());
    scratch =
        Arena(std::max({sparse.forward_bytes, sparse.backward_bytes, selection.bytes, loss.forward_bytes,
                        loss.backward_bytes, dense.forward_scratch_bytes, dense.backward_scratch_bytes}));
    weights.resize(static_cast<size_t>(rows * kIndexHeads));
    fill_normal(weights.data(), std::ssize(weights), 1.0f, RandomKey{1, 6});
    dweights = weights;
    lse.resize(static_cast<size_t>(rows * heads));
    mass.resize(static_cast<size_t>(rows * count));
    chosen.resize(mass.size());
    targets.resize(static_cast<size_t>(rows));
  }
  static Arena filled(int64_t n, DType dtype, uint32_t stream) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, 1.0f, RandomKey{1, stream});
    Arena arena(n * size_of(dtype));
    convert(arena.data(), dtype, values.data(), DType::kF32, n);
    return arena;
  }
  IndexerInputs index() const {
    return {.q = index_q.data(), .k = index_k.data(), .weights = weights.data()};
  }
  SparseAttentionInputs inputs() const {
    return {.q = q.data(), .k = kv.data(), .v = kv.data() + k_bytes, .chosen = chosen.data()};
  }
  void select() { select_keys(selection, chosen.data(), index(), scratch.data()); }
  void forward(bool with_mass) {
    sparse_attention_forward(sparse, out.data(), lse.data(), with_mass ? mass.data() : nullptr, inputs(),
                             scratch.data());
  }
  void backward() {
    sparse_attention_backward(sparse, {.dq = dq.data(), .dk = dkv.data(), .dv = dkv.data() + k_bytes},
                              dout.data(), out.data(), lse.data(), inputs(), scratch.data());
  }
  void run_dense() {
    const AttentionInputs in{.q = q.data(), .k = kv.data(), .v = kv.data() + k_bytes};
    attention_forward(dense, out.data(), lse.data(), in, scratch.data());
    attention_backward(dense, {.dq = dq.data(), .dk = dkv.data(), .dv = dkv.data() + k_bytes}, dout.data(),
                       out.data(), lse.data(), in, scratch.data());
  }
  void run_loss() {
    const IndexerLossInputs in{
        .rows = index(), .targets = targets.data(), .chosen = chosen.data(), .mass = mass.data()};
    double sum = 0;
    indexer_loss_forward(loss, &sum, in, false, scratch.data());
    indexer_loss_backward(loss, {.dq = index_dq.data(), .dk = index_dk.data(), .dweights = dweights.data()},
                          1.0f, in, scratch.data());
  }
};

// Arguments: rows, heads, chosen keys, bf16.
Operands operands_of(const benchmark::State& state) {
  return Operands(state.range(0), state.range(1), state.range(2),
                  state.range(3) != 0 ? DType::kBF16 : DType::kF32);
}

void sparse(benchmark::State& state) {
  Operands operands = operands_of(state);
  std::vector<double> ratios, selection, forward, backward;
  for (auto _ : state) {
    const double of_selection = seconds_of([&] { operands.select(); });
    const double of_forward = seconds_of([&] { operands.forward(false); });
    const double of_backward = seconds_of([&] { operands.backward(); });
    const double all = of_selection + of_forward + of_backward;
    selection.push_back(of_selection / all);
    forward.push_back(of_forward / all);
    backward.push_back(of_backward / all);
    ratios.push_back(all / seconds_of([&] { operands.run_dense(); }));
  }
  state.counters["of_dense"] = median_of(ratios);
  state.counters["selection"] = median_of(selection);
  state.counters["forward"] = median_of(forward);
  state.counters["backward"] = median_of(backward);
}
BENCHMARK(sparse)
    ->Args({4096, 8, 256, 0})
    ->Args({4096, 8, 256, 1})
    ->Iterations(5)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// The indexer's loss over the chosen keys and its gradients: `of_sparse`, its seconds by those of `sparse`.
void indexer_loss(benchmark::State& state) {
  Operands operands = operands_of(state);
  operands.select();
  operands.forward(true);
  std::vector<double> ratios;
  for (auto _ : state) {
    const double own = seconds_of([&] { operands.run_loss(); });
    ratios.push_back(own / seconds_of([&] {
                       operands.select();
                       operands.forward(true);
                       operands.backward();
                     }));
  }
  state.counters["of_sparse"] = median_of(ratios);
}
BENCHMARK(indexer_loss)
    ->Args({4096, 8, 256, 0})
    ->Args({4096, 8, 256, 1})
    ->Iterations(5)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::cpu
