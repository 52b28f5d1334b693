// Flash attention forward for sm_90a (Shah et al. 2024, FlashAttention-3): one warpgroup loads keys and
// values with TMA; the others have 64 queries each. The scores of the next tile of keys are computed while
// the weights of the current one are multiplied by its values.
#include "kernels/gpu/attention_forward.cuh"
#include "kernels/gpu/attention_wgmma.cuh"

namespace strata::gpu {

template <int kDimOf, int kGroupsOf>
struct WideShape {
  static constexpr int kDim = kDimOf, kGroups = kGroupsOf, kRows = kGroups * 64, kKeys = 128, kStages = 2,
                       kPanels = kDim / 64;
  static constexpr int kQueryBytes = kRows * kDim * 2, kKeyBytes = kKeys * kDim * 2,
                       kThreads = (kGroups + 1) * kWarpgroup;
  // Offsets in shared memory: queries, stages of keys, stages of values, barriers.
  static constexpr int kKeysAt = kQueryBytes, kValuesAt = kKeysAt + kStages * kKeyBytes,
                       kBarriersAt = kValuesAt + kStages * kKeyBytes;
};

template <typename Shape, bool kCapped>
__device__ __forceinline__ void attention_wgmma(const AttentionMapsArgs& maps) {
  constexpr int kDim = Shape::kDim, kRows = Shape::kRows, kKeys = Shape::kKeys, kStages = Shape::kStages,
                kPanels = Shape::kPanels;
  extern __shared__ __align__(1024) uint8_t shared[];
  const AttentionArgs& args = maps.attention;
  const uint32_t q_tile = shared_address(shared), k_tiles = q_tile + Shape::kKeysAt,
                 v_tiles = q_tile + Shape::kValuesAt;
  const uint32_t q_full = q_tile + Shape::kBarriersAt, k_full = q_full + 8, k_empty = k_full + kStages * 8,
                 v_full = k_empty + kStages * 8, v_empty = v_full + kStages * 8;
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / args.kv_heads);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) {
    barrier_init(q_full, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(k_full + stage * 8, 1);
      barrier_init(v_full + stage * 8, 1);
      barrier_init(k_empty + stage * 8, Shape::kGroups * kWarpgroup / kWarp);
      barrier_init(v_empty + stage * 8, Shape::kGroups * kWarpgroup / kWarp);
    }
    barriers_ready();
  }
  __syncthreads();
  const KeyRange range = key_range(args, sequence, row0, kRows);
  const int begin = range.begin / kKeys * kKeys, steps = max(0, (range.end - begin + kKeys - 1) / kKeys);

  if (warp < kWarpgroup / kWarp) {
    give_registers<Shape::kGroups == 2 ? 24 : 32>();
    if (threadIdx.x != 0 || steps == 0) return;
    barrier_expect(q_full, Shape::kQueryBytes);
    copy_panels<kPanels, kRows>(q_tile, maps.q, sequence * args.length + row0, head * kDim, q_full);
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages, parity = step / kStages % 2,
                row = sequence * args.kv_length + begin + step * kKeys;
      barrier_wait(k_empty + stage * 8, parity ^ 1);
      barrier_expect(k_full + stage * 8, Shape::kKeyBytes);
      copy_panels<kPanels, kKeys>(k_tiles + stage * Shape::kKeyBytes, maps.k, row, kv_head * kDim,
                                  k_full + stage * 8);
      barrier_wait(v_empty + stage * 8, parity ^ 1);
      barrier_expect(v_full + stage * 8, Shape::kKeyBytes);
      copy_panels<kPanels, kKeys>(v_tiles + stage * Shape::kKeyBytes, maps.v, row, kv_head * kDim,
                                  v_full + stage * 8);
    }
    return;
  }

  take_registers<Shape::kGroups == 2 ? 240 : 160>();
  const int group = warp / (kWarpgroup / kWarp) - 1, first_row = row0 + group * 64 + warp % 4 * 16;
  const bool speaks = threadIdx.x % kWarp == 0;
  const float unit = kCapped ? kLog2E : args.scale * kLog2E;
  float sum[1][kDim / 8][4] = {}, most[1][2] = {{-INFINITY, -INFINITY}}, total[1][2] = {}, shrink[1][2],
                      scores[1][kKeys / 8][4];
  uint32_t weights[kKeys / 16][4];
  const auto begin_scores = [&](int step) {
    const int stage = step % kStages;
    barrier_wait(k_full + stage * 8, step / kStages % 2);
    wgmma_fence();
    multiply_panels<kDim, kRows, kKeys>(scores[0], q_tile + group * 64 * 128,
                                        k_tiles + stage * Shape::kKeyBytes);
    wgmma_commit();
  };
  const auto begin_values = [&](int step) {
    const int stage = step % kStages;
    barrier_wait(v_full + stage * 8, step / kStages % 2);
    wgmma_fence();
    multiply_weights_async<kKeys>(sum[0], weights, v_tiles + stage * Shape::kKeyBytes);
    wgmma_commit();
  };
  const auto weigh = [&](int step) {
    const int key0 = begin + step * kKeys;
    mask_scores<1, kKeys, kCapped>(scores, args, sequence, first_row, key0,
                                   key0 >= range.full_begin && key0 + kKeys <= range.full_end);
    weigh_scores<1, kKeys>(scores, most, total, shrink, unit);
  };
  const auto release = [&](uint32_t barriers, int step) {
    if (speaks) barrier_arrive(barriers + step % kStages * 8, 0);
  };

  if (steps > 0) {
    barrier_wait(q_full, 0);
    begin_scores(0);
    wgmma_wait<0>();
    settle(scores[0]);
    release(k_empty, 0);
    weigh(0);
    pack_weights<kKeys>(weights, scores[0]);
    for (int step = 1; step < steps; ++step) {
      begin_scores(step);
      begin_values(step - 1);
      wgmma_wait<1>();
      settle(scores[0]);
      release(k_empty, step);
      weigh(step);
      wgmma_wait<0>();
      settle(sum[0]);
      release(v_empty, step - 1);
      shrink_rows<1, kDim>(sum, shrink);
      pack_weights<kKeys>(weights, scores[0]);
    }
    begin_values(steps - 1);
    wgmma_wait<0>();
    settle(sum[0]);
  }
  finish_rows<1, kDim, kCapped>(args, sum, most, total, sequence, head, first_row);
}

#define STRATA_WIDE(DIM, GROUPS)                                                    \
  extern "C" __global__ void __launch_bounds__(WideShape<DIM, GROUPS>::kThreads, 1) \
      attention_wgmma_##DIM(const __grid_constant__ AttentionMapsArgs args) {       \
    attention_wgmma<WideShape<DIM, GROUPS>, false>(args);                           \
  }
STRATA_WIDE(64, 3)
STRATA_WIDE(128, 2)

}  // namespace strata::gpu
