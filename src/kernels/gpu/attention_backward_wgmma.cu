// Flash attention backward for sm_90a: the kernels of attention_backward.cuh with wgmma. One warpgroup loads
// tiles of the other side with TMA; two compute 64 rows each.
#include "kernels/gpu/attention_backward.cuh"
#include "kernels/gpu/attention_wgmma.cuh"

namespace strata::gpu {

// kOthers rows of the other side at a time.
template <int kDimOf, int kOthersOf, int kStagesOf>
struct WideBackward {
  static constexpr int kDim = kDimOf, kOthers = kOthersOf, kStages = kStagesOf, kGroups = 2,
                       kRows = kGroups * 64, kPanels = kDim / 64;
  static constexpr int kWarps = (kGroups + 1) * 4, kThreads = kWarps * kWarp, kConsumerWarps = kGroups * 4;
  // Shared memory: two tiles of own rows; stages of two tiles and 1024 bytes of lse and delta; barriers.
  static constexpr int kOwnBytes = kRows * kDim * 2, kOtherBytes = kOthers * kDim * 2,
                       kStage = 2 * kOtherBytes + 1024;
  static constexpr int kStagesAt = 2 * kOwnBytes, kBarriersAt = kStagesAt + kStages * kStage;
};

template <typename Shape>
struct WideRing {
  uint32_t stages, full, empty;
  int stage = 0, parity = 0;
  __device__ explicit WideRing(uint32_t shared)
      : stages(shared + Shape::kStagesAt),
        full(shared + Shape::kBarriersAt + 8),
        empty(full + Shape::kStages * 8) {}
  // Called by one thread. `arrivals`: arrivals that complete a stage.
  __device__ void init(uint32_t own_full, int arrivals) const {
    barrier_init(own_full, 1);
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(full + i * 8, arrivals);
      barrier_init(empty + i * 8, Shape::kConsumerWarps);
    }
    barriers_ready();
  }
  __device__ __forceinline__ uint32_t at() const { return stages + stage * Shape::kStage; }
  __device__ __forceinline__ uint32_t filled() const { return full + stage * 8; }
  __device__ __forceinline__ void wait_empty() const { barrier_wait(empty + stage * 8, parity ^ 1); }
  __device__ __forceinline__ void wait_full() const { barrier_wait(full + stage * 8, parity); }
  __device__ __forceinline__ void release() const {
    if (threadIdx.x % kWarp == 0) barrier_arrive(empty + stage * 8);
  }
  __device__ __forceinline__ void next() {
    if (++stage == Shape::kStages) stage = 0, parity ^= 1;
  }
};

// The header of a stage of queries, after its lse and delta.
struct QueryTile {
  int query0;  // -1: no more tiles
  int full_begin, full_end, unused;
};

template <typename Shape>
__device__ __forceinline__ void wide_keys(const AttentionMapsArgs& maps) {
  constexpr int kDim = Shape::kDim, kRows = Shape::kRows, kQueries = Shape::kOthers, kPanels = Shape::kPanels;
  constexpr int kPerRange = kRangeRows / kQueries;
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ int found[2 * Shape::kWarps];
  const AttentionArgs& args = maps.attention;
  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + Shape::kOwnBytes,
                 own_full = k_tile + Shape::kBarriersAt;
  WideRing<Shape> ring(k_tile);
  const int key0 = static_cast<int>(blockIdx.x) * kRows, kv_head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z);
  const int group = args.heads / args.kv_heads, lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) ring.init(own_full, kWarp + 1);
  int first, last;
  find_tiles(args, sequence, key0, min(key0 + kRows, args.kv_length), found, &first, &last);

  if (warp < kWarpgroup / kWarp) {
    give_registers<24>();
    if (warp > 0) return;
    if (lane == 0) {
      barrier_expect(own_full, 2 * Shape::kOwnBytes);
      copy_panels<kPanels, kRows>(k_tile, maps.k, sequence * args.kv_length + key0, kv_head * kDim, own_full);
      copy_panels<kPanels, kRows>(v_tile, maps.v, sequence * args.kv_length + key0, kv_head * kDim, own_full);
    }
    const int tiles = (args.length + kRangeRows - 1) / kRangeRows;
    const auto announce = [&](const QueryTile& tile) {
      if (lane == 0)
        *reinterpret_cast<QueryTile*>(shared + (ring.at() - k_tile) + 2 * Shape::kOtherBytes +
                                      2 * kQueries * 4) = tile;
    };
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int tile = first * kPerRange; tile < last * kPerRange; ++tile) {
        const int query0 = tile * kQueries;
        const int4 range = *reinterpret_cast<const int4*>(
            args.tiles + (static_cast<int64_t>(sequence) * tiles + tile / kPerRange) * 4);
        if (range.x >= key0 + kRows || range.y <= key0 || query0 >= args.length) continue;
        const int64_t row = (static_cast<int64_t>(sequence) * args.heads + head) * args.length + query0;
        ring.wait_empty();
        // Rows beyond the sequence belong to the next one: their weight is zero.
        float* const to = reinterpret_cast<float*>(shared + (ring.at() - k_tile) + 2 * Shape::kOtherBytes);
#pragma unroll
        for (int query = lane; query < kQueries; query += kWarp) {
          const bool inside = query0 + query < args.length;
          to[query] = inside ? args.lse[row + query] : INFINITY;
          to[kQueries + query] = inside ? args.delta[row + query] : 0.0f;
        }
        announce({query0, range.z, range.w, 0});
        if (lane == 0) {
          barrier_expect(ring.filled(), 2 * Shape::kOtherBytes);
          copy_panels<kPanels, kQueries>(ring.at(), maps.q, sequence * args.length + query0, head * kDim,
                                         ring.filled());
          copy_panels<kPanels, kQueries>(ring.at() + Shape::kOtherBytes, maps.dout,
                                         sequence * args.length + query0, head * kDim, ring.filled());
        }
        barrier_arrive(ring.filled());
        ring.next();
      }
    }
    ring.wait_empty();
    announce({-1, 0, 0, 0});
    if (lane == 0) barrier_arrive(ring.filled());
    barrier_arrive(ring.filled());
    return;
  }

  take_registers<240>();
  const int own = (warp / 4 - 1) * 64, first_key = key0 + own + warp % 4 * 16;
  float dk[1][kDim / 8][4] = {}, dv[1][kDim / 8][4] = {};
  const Weights<false> weigh(args);
  barrier_wait(own_full, 0);
  while (true) {
    ring.wait_full();
    const uint8_t* const numbers = shared + (ring.at() - k_tile) + 2 * Shape::kOtherBytes;
    const QueryTile tile = *reinterpret_cast<const QueryTile*>(numbers + 2 * kQueries * 4);
    if (tile.query0 < 0) break;
    const float* const lse = reinterpret_cast<const float*>(numbers);
    float p[kQueries / 8][4], ds[kQueries / 8][4];
    uint32_t weights[kQueries / 16][4], slopes[kQueries / 16][4];
    wgmma_fence();
    multiply_panels<kDim, kRows, kQueries>(p, k_tile + own * 128, ring.at());
    wgmma_commit();
    multiply_panels<kDim, kRows, kQueries>(ds, v_tile + own * 128, ring.at() + Shape::kOtherBytes);
    wgmma_commit();
    wgmma_wait<1>();
    settle(p);
    const bool all_seen = tile.full_begin <= key0 && tile.full_end >= key0 + kRows;
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const float2 out_of = *reinterpret_cast<const float2*>(lse + j * 8 + lane % 4 * 2);
      float none;
#pragma unroll
      for (int e = 0; e < 4; ++e) p[j][e] = weigh(p[j][e], e % 2 == 0 ? out_of.x : out_of.y, &none);
      if (!all_seen) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int2 seen = keys_of_row(args, sequence, tile.query0 + j * 8 + lane % 4 * 2 + e);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int key = first_key + half * 8 + lane / 4;
            if (key < seen.x || key >= seen.y) p[j][half * 2 + e] = 0.0f;
          }
        }
      }
    }
    pack_weights<kQueries>(weights, p);
    wgmma_fence();
    multiply_weights_async<kQueries>(dv[0], weights, ring.at() + Shape::kOtherBytes);
    wgmma_commit();
    wgmma_wait<1>();
    settle(ds);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(lse + kQueries + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[j][e] = p[j][e] * (ds[j][e] - (e % 2 == 0 ? delta.x : delta.y));
    }
    pack_weights<kQueries>(slopes, ds);
    wgmma_fence();
    multiply_weights_async<kQueries>(dk[0], slopes, ring.at());
    wgmma_commit();
    wgmma_wait<0>();
    settle(dv[0]);
    settle(dk[0]);
    ring.release();
    ring.next();
  }

  const int64_t row = static_cast<int64_t>(sequence) * args.kv_length + first_key;
  const int rows = args.kv_length - first_key;
  const float scales[1][2] = {{args.scale, args.scale}}, ones[1][2] = {{1.0f, 1.0f}};
  store_rows<1, kDim>(
      dk, scales, static_cast<BF16*>(args.dk) + row * args.k_stride + static_cast<int64_t>(kv_head) * kDim,
      args.k_stride, rows, kDim);
  store_rows<1, kDim>(
      dv, ones, static_cast<BF16*>(args.dv) + row * args.v_stride + static_cast<int64_t>(kv_head) * kDim,
      args.v_stride, rows, kDim);
}

template <typename Shape>
__device__ __forceinline__ void wide_queries(const AttentionMapsArgs& maps) {
  constexpr int kDim = Shape::kDim, kRows = Shape::kRows, kKeys = Shape::kOthers, kPanels = Shape::kPanels;
  extern __shared__ __align__(1024) uint8_t shared[];
  const AttentionArgs& args = maps.attention;
  const uint32_t q_tile = shared_address(shared), do_tile = q_tile + Shape::kOwnBytes,
                 own_full = q_tile + Shape::kBarriersAt;
  WideRing<Shape> ring(q_tile);
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / args.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) ring.init(own_full, 1);
  __syncthreads();
  const KeyRange range = key_range(args, sequence, row0, kRows);
  const int begin = range.begin / kKeys * kKeys;

  if (warp < kWarpgroup / kWarp) {
    give_registers<24>();
    if (threadIdx.x != 0 || begin >= range.end) return;
    barrier_expect(own_full, 2 * Shape::kOwnBytes);
    copy_panels<kPanels, kRows>(q_tile, maps.q, sequence * args.length + row0, head * kDim, own_full);
    copy_panels<kPanels, kRows>(do_tile, maps.dout, sequence * args.length + row0, head * kDim, own_full);
    for (int key0 = begin; key0 < range.end; key0 += kKeys, ring.next()) {
      ring.wait_empty();
      barrier_expect(ring.filled(), 2 * Shape::kOtherBytes);
      copy_panels<kPanels, kKeys>(ring.at(), maps.k, sequence * args.kv_length + key0, kv_head * kDim,
                                  ring.filled());
      copy_panels<kPanels, kKeys>(ring.at() + Shape::kOtherBytes, maps.v, sequence * args.kv_length + key0,
                                  kv_head * kDim, ring.filled());
    }
    return;
  }

  take_registers<240>();
  const int own = (warp / 4 - 1) * 64, first_row = row0 + own + warp % 4 * 16;
  float dq[1][kDim / 8][4] = {}, lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane / 4;
    const int64_t at = (static_cast<int64_t>(sequence) * args.heads + head) * args.length + row;
    lse[half] = row < args.length ? args.lse[at] : 0.0f;
    delta[half] = row < args.length ? args.delta[at] : 0.0f;
  }
  const Weights<false> weigh(args);
  if (begin < range.end) barrier_wait(own_full, 0);
  for (int key0 = begin; key0 < range.end; key0 += kKeys, ring.next()) {
    ring.wait_full();
    float p[kKeys / 8][4], ds[kKeys / 8][4];
    uint32_t slopes[kKeys / 16][4];
    wgmma_fence();
    multiply_panels<kDim, kRows, kKeys>(p, q_tile + own * 128, ring.at());
    wgmma_commit();
    multiply_panels<kDim, kRows, kKeys>(ds, do_tile + own * 128, ring.at() + Shape::kOtherBytes);
    wgmma_commit();
    wgmma_wait<1>();
    settle(p);
    const bool all_seen = key0 >= range.full_begin && key0 + kKeys <= range.full_end;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int2 seen = make_int2(0, args.kv_length);
      if (!all_seen) seen = keys_of_row(args, sequence, first_row + half * 8 + lane / 4);
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float none;
          float& to = p[j][half * 2 + e];
          to = weigh(to, lse[half], &none);
          const int key = key0 + j * 8 + lane % 4 * 2 + e;
          if (!all_seen && (key < seen.x || key >= seen.y)) to = 0.0f;
        }
      }
    }
    wgmma_wait<0>();
    settle(ds);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[j][e] = p[j][e] * (ds[j][e] - delta[e / 2]);
    }
    pack_weights<kKeys>(slopes, ds);
    wgmma_fence();
    multiply_weights_async<kKeys>(dq[0], slopes, ring.at());
    wgmma_commit();
    wgmma_wait<0>();
    settle(dq[0]);
    ring.release();
  }
  const float scales[1][2] = {{args.scale, args.scale}};
  store_rows<1, kDim>(dq, scales,
                      static_cast<BF16*>(args.dq) +
                          (static_cast<int64_t>(sequence) * args.length + first_row) * args.q_stride +
                          static_cast<int64_t>(head) * kDim,
                      args.q_stride, args.length - first_row, kDim);
}

#define STRATA_WIDE(NAME, DIM, OTHERS, STAGES, BODY)                                   \
  extern "C" __global__ void __launch_bounds__(384, 1)                                 \
      attention_wgmma_##NAME##_##DIM(const __grid_constant__ AttentionMapsArgs args) { \
    BODY<WideBackward<DIM, OTHERS, STAGES>>(args);                                     \
  }
STRATA_WIDE(keys, 64, 64, 3, wide_keys)
STRATA_WIDE(keys, 128, 64, 3, wide_keys)
STRATA_WIDE(queries, 64, 128, 3, wide_queries)
STRATA_WIDE(queries, 128, 64, 3, wide_queries)

}  // namespace strata::gpu
