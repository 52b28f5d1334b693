// Features of sm_90a: wgmma from shared memory, TMA copies, mbarriers that count bytes, clusters. The PTX
// executor supports none of them: kernels that include this file are only checked on hardware
// (bench/gpu_kernels).
#pragma once

#include "kernels/gpu/args.h"
#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

constexpr int kWarpgroup = 128;  // threads

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- Clusters
__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void synchronize_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// --- Barriers in shared memory
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to TMA copies and to the cluster.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra past;\n"
      "bra again;\n"
      "past:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Arrives and announces the bytes of copies.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the same barrier of a block of the cluster.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// --- TMA copies of a box of a matrix that starts at (row, column), into this block or, with `blocks`, to the same
// address in several blocks of the cluster. Completion is signaled on `barrier` there.
__device__ __forceinline__ void copy_box(uint32_t to, const TensorMap& map, int row, int column,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const TensorMap& map, int row, int column,
                                         uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// --- wgmma. Operands are tiles with rows of 128 bytes, permuted as TileRows<8>, aligned to 1024 bytes. kDeep:
// rows have 64 elements along the depth. Otherwise each row is one step of the depth, with 64 rows or columns of
// the result; the next 64 are `next` bytes further.
template <bool kDeep>
__device__ __forceinline__ uint64_t operand(uint32_t tile, int next) {
  constexpr uint64_t kPermuted = 1ull << 62, kEightRows = 1024 >> 4;
  return kPermuted | kEightRows << 32 | static_cast<uint64_t>(kDeep ? 1 : next >> 4) << 16 |
         (tile & 0x3ffff) >> 4;
}
// Offset to the operand 16 steps of the depth further.
template <bool kDeep>
constexpr uint64_t kNextDepth = (kDeep ? 32 : 2048) >> 4;

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define STRATA_SUM1(J) "+f"(c[J][0]), "+f"(c[J][1]), "+f"(c[J][2]), "+f"(c[J][3])
#define STRATA_SUM4(J) STRATA_SUM1(J), STRATA_SUM1(J + 1), STRATA_SUM1(J + 2), STRATA_SUM1(J + 3)
#define STRATA_SUM16(J) STRATA_SUM4(J), STRATA_SUM4(J + 4), STRATA_SUM4(J + 8), STRATA_SUM4(J + 12)
#define STRATA_LIST32                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define STRATA_LIST64                                                                \
  STRATA_LIST32                                                                      \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define STRATA_LIST128                                                                           \
  STRATA_LIST64                                                                                  \
  ", "                                                                                           \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Prevents the compiler from reading sums before the wait.
template <int kCount>
__device__ __forceinline__ void settle(float (&c)[kCount][4]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) asm volatile("" : STRATA_SUM1(j)::"memory");
}

// c[64][256] (+)= a[64][16] · b[16][256]. Lane l of warp w holds rows 16 · w + l / 4 (+ 8) and, in each group
// j of eight columns, columns l % 4 · 2 and the next.
template <bool kDeepA, bool kDeepB>
__device__ __forceinline__ void multiply_async(float (&c)[32][4], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" STRATA_LIST128
      "}, %128, %129, add, 1, 1, %131, %132;\n"
      "}"
      : STRATA_SUM16(0), STRATA_SUM16(16)
      : "l"(a), "l"(b), "r"(add), "n"(kDeepA ? 0 : 1), "n"(kDeepB ? 0 : 1));
}

// c[64][128] and c[64][64], both operands deep.
__device__ __forceinline__ void multiply_async(float (&c)[16][4], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" STRATA_LIST64
      "}, %64, %65, add, 1, 1, 0, 0;\n"
      "}"
      : STRATA_SUM16(0)
      : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void multiply_async(float (&c)[8][4], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" STRATA_LIST32
      "}, %32, %33, add, 1, 1, 0, 0;\n"
      "}"
      : STRATA_SUM4(0), STRATA_SUM4(4)
      : "l"(a), "l"(b), "r"(add));
}
// c += a · b: a in registers as in multiply_bf16, b not deep.
__device__ __forceinline__ void multiply_async(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" STRATA_LIST64
      "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1;\n"
      "}"
      : STRATA_SUM16(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_async(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" STRATA_LIST32
      "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1;\n"
      "}"
      : STRATA_SUM4(0), STRATA_SUM4(4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

}  // namespace strata::gpu
